"""Types of the columns of exported records."""

from typing import get_args

from sqlalchemy import BigInteger, Boolean, Float, String

from mcp_exec_api.wire.records import RecordTable
from mcp_exec_broker.features.records.tables import RECORD_TABLES
from mcp_exec_client.cli.commands.records import FLAGS, INTEGERS, REALS, TABLES


def test_an_export_knows_all_tables_of_the_store() -> None:
    assert TABLES == (*RECORD_TABLES,) == get_args(RecordTable)


def test_an_export_knows_the_type_of_each_column_of_the_store() -> None:
    kinds = {String: frozenset(), BigInteger: INTEGERS, Float: REALS, Boolean: FLAGS}
    for table in RECORD_TABLES.values():
        for column in table.columns:
            known = [names for names in (INTEGERS, REALS, FLAGS) if column.name in names]
            expected = kinds[type(column.type)]
            assert known == ([expected] if expected else []), f"{table.name}.{column.name}"
