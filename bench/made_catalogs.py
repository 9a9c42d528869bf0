"""Made catalogs, for searches among more tools than there are real catalogs of.

Each tool is distinct: a verb and a thing that only one made server has, with a description and parameters. The servers'
subjects are none of the real servers', so that no made tool answers a query of the benchmark.
"""

from typing import Any, Final

_THINGS: Final = {
    "airline": "flight seat_map boarding_pass baggage_claim crew_roster fare_class",
    "archery-club": "archer target_score range_slot bow_rental tournament coaching_hour",
    "bakery": "recipe_batch oven_schedule flour_delivery cake_order pastry display_case",
    "blood-bank": "donor donation_slot blood_unit screening_result transfusion courier",
    "brewery": "brew_kettle fermentation hop_lot keg_shipment tasting_panel bottling_line",
    "car-rental": "vehicle rental_agreement mileage_reading damage_claim fuel_card pickup_desk",
    "cinema": "screening seat_hold film_print projector concession_stand ticket_stub",
    "clinic": "patient appointment prescription lab_sample referral ward_bed",
    "courier": "parcel delivery_route proof_of_delivery depot driver_shift customs_form",
    "dairy-farm": "cow milking_session feed_ration pasture veterinary_visit milk_tank",
    "dental": "tooth_chart cleaning_visit xray_plate crown_fitting retainer hygiene_plan",
    "elevator": "lift_car floor_call inspection_certificate cable_tension door_sensor shaft",
    "event-hall": "venue guest_list catering_menu stage_rig floor_plan cloakroom",
    "fire-station": "engine_crew hydrant alarm_call hose_test drill ladder_truck",
    "fishery": "trawler catch_quota net_repair fish_auction harbour_berth cold_store",
    "fleet": "truck tachograph tyre_set service_interval toll_charge trailer",
    "florist": "bouquet stem_stock vase wreath_order wedding_arch greenhouse_bench",
    "forestry": "tree_stand felling_permit seedling_lot timber_load fire_break ranger_patrol",
    "furniture": "cabinet wood_panel assembly_step upholstery showroom warranty_card",
    "gas-grid": "gas_meter pressure_valve leak_survey pipeline_segment compressor odorant",
    "gym": "membership workout_class trainer locker treadmill body_measurement",
    "helpline": "caller volunteer_shift crisis_script callback hotline_number debriefing",
    "hotel": "guest_room minibar housekeeping_round wake_up_call spa_treatment key_card",
    "insurance": "insurance_policy claim_file premium_plan beneficiary risk_survey adjuster",
    "jeweller": "gemstone ring_sizing hallmark engraving_job appraisal gold_bar",
    "kindergarten": "child_profile nap_time parent_contact playground_check lunch_box craft_day",
    "laundry": "wash_cycle garment_tag ironing_queue detergent stain_report dryer",
    "law-firm": "legal_case court_hearing retainer_fee witness deposition evidence_box",
    "lighthouse": "beacon_lamp foghorn keeper_rota lens_polish ship_sighting battery_bank",
    "loyalty": "loyalty_card points_balance reward_voucher tier_status partner_shop campaign",
    "mine": "ore_sample drill_hole blasting_plan ventilation_fan haul_truck safety_lamp",
    "museum": "exhibit artefact_loan curator gallery_room audio_guide restoration",
    "notary": "deed seal signature_witness power_of_attorney will_registry apostille",
    "observatory": "telescope_slot star_catalogue exposure_plate dome_shutter spectrum asteroid",
    "opera": "aria rehearsal_call costume_fitting orchestra_part surtitle season_pass",
    "optician": "lens_order eye_test frame_model contact_lens visual_field glasses_repair",
    "orchard": "apple_row harvest_crew pruning_round pest_trap cider_press irrigation_valve",
    "parking": "parking_bay permit_holder barrier_gate parking_fine payment_kiosk charging_post",
    "payroll": "payslip overtime_claim tax_band pension_fund leave_balance bonus_round",
    "pharmacy": "medicine drug_interaction refill dosage_label controlled_substance vaccine_dose",
    "post-office": "postbox stamp_issue mail_sack registered_letter redelivery counter_queue",
    "printing": "print_run paper_stock ink_level binding_job proof_sheet press_plate",
    "quarry": "stone_block crusher rock_face weighbridge dust_monitor blast_siren",
    "railway": "train_set platform_slot signal_aspect track_section rail_ticket conductor",
    "recruiting": "candidate job_opening interview_round offer_letter reference_check talent_pool",
    "recycling": "waste_bin collection_round sorting_belt glass_bale compost_heap landfill_gate",
    "restaurant": "table_plan dish kitchen_slip wine_cellar waiter allergen",
    "ski-resort": "chairlift piste_report ski_pass avalanche_watch snow_cannon ski_lesson",
    "solar-park": "solar_panel inverter yield_curve feed_in_tariff cleaning_robot tracker_axis",
    "swimming": "swim_lane water_quality lifeguard_chair swim_course pool_heater diving_board",
    "tailor": "suit_order fabric_roll fitting_date hem_change button_set pattern_piece",
    "theme-park": "ride_queue height_limit mascot parade fast_lane souvenir_photo",
    "vineyard": "grape_row wine_barrel harvest_day cork_batch cellar_tour frost_alarm",
    "water-works": "reservoir chlorine_dose water_main pump_station hydraulic_model outage_notice",
    "wind-farm": "turbine rotor_blade wind_mast gearbox_oil substation crane_hire",
    "zoo": "animal enclosure feeding_round keeper_note breeding_pair visitor_path",
}
"""Six things of each server."""
_VERBS: Final = {
    "create": ("Add a new {thing} to the {server} system and return its number.", ("label", "remarks")),
    "get": ("Return the details of one {thing} of the {server}, by its number.", ("number",)),
    "list": ("List every {thing} that the {server} has, newest first, in pages.", ("page", "state")),
    "update": ("Change the fields of an existing {thing} of the {server}.", ("number", "label", "state")),
    "delete": ("Remove one {thing} from the {server} for good.", ("number",)),
    "search": ("Find each {thing} of the {server} whose label or remarks contain words.", ("text", "page")),
    "assign": ("Assign a responsible employee to a {thing} of the {server}.", ("number", "employee")),
    "export": ("Export each {thing} of the {server} between two days.", ("first_day", "last_day")),
}
_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "employee": {"type": "string", "description": "Personnel number of the employee"},
    "first_day": {"type": "string", "description": "First day, ISO 8601"},
    "label": {"type": "string", "description": "Short label that people see"},
    "last_day": {"type": "string", "description": "Last day, ISO 8601"},
    "number": {"type": "integer", "description": "Number that identifies it"},
    "page": {"type": "integer", "description": "Page, from 1", "default": 1},
    "remarks": {"type": "string", "description": "Remarks in free text"},
    "state": {"type": "string", "enum": ["planned", "active", "finished"], "description": "State of it"},
    "text": {"type": "string", "description": "Words that are looked for"},
}


def make_tools(count: int) -> dict[str, list[dict[str, Any]]]:
    """Return so many tools as entries of `tools/list` by server, the same for each call.

    Raises ValueError if there are not as many.
    """
    made: dict[str, list[dict[str, Any]]] = {}
    # Servers are filled evenly: with all that there is for one thing of each, then for the next.
    rows = zip(*(things.split() for things in _THINGS.values()), strict=True)
    pairs = [pair for row in rows for pair in zip(_THINGS, row, strict=True)]
    if count > len(pairs) * len(_VERBS):
        raise ValueError(f"{count} tools were wanted, {len(pairs) * len(_VERBS)} can be made")
    for server, thing, verb in [(*pair, verb) for pair in pairs for verb in _VERBS][:count]:
        description, parameters = _VERBS[verb]
        made.setdefault(server, []).append(
            {
                "name": f"{verb}_{thing}",
                "description": description.format(thing=thing.replace("_", " "), server=server.replace("-", " ")),
                "inputSchema": {
                    "type": "object",
                    "properties": {name: _PARAMETERS[name] for name in parameters},
                    "required": list(parameters[:1]),
                },
            }
        )
    return made
