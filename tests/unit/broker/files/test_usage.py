"""How the bytes that owners have stored are counted."""

from tests.support.files_store import SPACE, FilesWorld


async def test_an_owner_who_writes_all_the_time_is_listed_again_for_what_other_replicas_wrote() -> None:
    world = FilesWorld()
    busy, other = world.store, world.build()
    reserve = await busy.usage.open(SPACE)
    await other.storage.create(f"{SPACE.data('w')}/packs/other", b"x" * 1000)
    for _ in range(3):
        world.seconds += 250
        (await busy.usage.open(SPACE))(1)

    assert await busy.usage.measure(SPACE) >= 1000

    reserve(5)
    assert await busy.usage.measure(SPACE) >= 1005, "a writer that began before counts, too"
