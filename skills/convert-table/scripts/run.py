"""Converts tables between files, with only the standard library."""

import csv
import json
import math
import re
import zipfile
from datetime import datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree
from xml.sax.saxutils import escape

_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_SHARED, _ITEM = "xl/sharedStrings.xml", f"{_MAIN}si"
_REFERENCE = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_EPOCH, _EPOCH_1904 = datetime(1899, 12, 30), datetime(1904, 1, 1)
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?")
_MAX_CELL = 16 * 1024 * 1024
_MAX_UNPACKED = 512 * 1024 * 1024
_PACKAGE = {
    "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/>'
    '<Override PartName="/xl/worksheets/sheet1.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/></Types>',
    "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"'
    ' Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": '<workbook xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main" '
    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">'
    '<sheets><sheet name="Sheet1" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": "<Relationships xmlns="
    '"http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" '
    'Target="worksheets/sheet1.xml"/></Relationships>',
}


def run(source: str, target: str | None = None, sheet: int = 1) -> dict | list[dict]:
    """Convert the table in a file to the format of another. Return its number of rows, or the rows without a target.

    A column of CSV that holds only numbers becomes numbers, except for those with leading zeros, such as postal codes.
    Dates of Excel become texts such as `2026-11-23` or `2026-11-23T08:30:00`. A second column of the same name is
    numbered.

    Args:
        source: path of a .csv, .tsv, .json, .jsonl or .xlsx file.
        target: path of the file to write, with one of these endings.
        sheet: number of the sheet of an Excel file, from 1.
    """
    rows = _read(Path(source), sheet)
    if target is None:
        return rows
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    _write(Path(target), rows)
    return {"path": target, "rows": len(rows), "columns": _list_columns(rows)}


def _read(path: Path, sheet: int) -> list[dict]:
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv"):
        csv.field_size_limit(_MAX_CELL)
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = list(csv.reader(file, delimiter="\t" if kind == ".tsv" else ","))
        return _parse_columns(_name_rows(table))
    if kind == ".xlsx":
        return _name_rows(_read_excel(path, sheet))
    if kind == ".jsonl":
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    elif kind == ".json":
        data = json.loads(path.read_text(encoding="utf-8"))
        rows = data if isinstance(data, list) else [data]
    else:
        raise ValueError(f"{path}: the ending {kind or 'of the name'} is not .csv, .tsv, .json, .jsonl or .xlsx")
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise ValueError(f"{path}: row {number} is no object with the values by column, but {type(row).__name__}")
    return rows


def _write(path: Path, rows: list[dict]) -> None:
    kind, columns = path.suffix.lower(), _list_columns(rows)
    if kind in (".csv", ".tsv"):
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, delimiter="\t" if kind == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    elif kind == ".jsonl":
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        path.write_text("".join(lines), encoding="utf-8")
    elif kind == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")
    elif kind == ".xlsx":
        _write_excel(path, columns, rows)
    else:
        raise ValueError(f"{path}: the ending {kind or 'of the name'} is not .csv, .tsv, .json, .jsonl or .xlsx")


def _list_columns(rows: list[dict]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _name_rows(table: list[list]) -> list[dict]:
    """Return the rows below the first, which has the names of the columns. Empty rows are left out."""
    names: list[str] = []
    for number, value in enumerate(table[0] if table else [], 1):
        name = str(value).strip() if value not in (None, "") else f"column_{number}"
        names.append(name if name not in names else f"{name}_{number}")
    rows = (row for row in table[1:] if any(value not in (None, "") for value in row))
    return [dict(zip(names, [*row, *[None] * (len(names) - len(row))], strict=False)) for row in rows]


def _parse_columns(rows: list[dict]) -> list[dict]:
    """Make numbers of the columns that hold nothing else, and None of empty texts."""
    for name in rows[0] if rows else ():
        values = [row[name] or None for row in rows]
        if all(value is None or (len(value) <= 300 and _NUMBER.fullmatch(value)) for value in values):
            values = [None if value is None else _to_number(value) for value in values]
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return rows


def _to_number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else float(text)


def _read_excel(path: Path, sheet: int) -> list[list]:
    with zipfile.ZipFile(path) as archive:
        if (size := sum(info.file_size for info in archive.infolist())) > _MAX_UNPACKED:
            raise ValueError(f"{path}: it has {size} bytes unpacked; at most {_MAX_UNPACKED} are read")
        names = archive.namelist()

        def load(name: str) -> ElementTree.Element:
            return ElementTree.fromstring(archive.read(name)) if name in names else ElementTree.Element("none")

        shared = ["".join(part.text or "" for part in item.iter(f"{_MAIN}t")) for item in load(_SHARED).iter(_ITEM)]
        formats = _find_date_formats(load("xl/styles.xml"))
        workbook = load("xl/workbook.xml")
        targets = {each.get("Id"): each.get("Target", "") for each in load("xl/_rels/workbook.xml.rels")}
        sheets = [targets.get(each.get(_REFERENCE), "") for each in workbook.iter(f"{_MAIN}sheet")]
        if not 1 <= sheet <= len(sheets):
            raise ValueError(f"{path}: there is no sheet {sheet}; it has {len(sheets)}")
        file = sheets[sheet - 1]
        root = load(file.removeprefix("/") if file.startswith("/") else f"xl/{file}")
    properties = workbook.find(f"{_MAIN}workbookPr")
    epoch = _EPOCH_1904 if properties is not None and properties.get("date1904") in ("1", "true") else _EPOCH
    table = []
    for row in root.iter(f"{_MAIN}row"):
        cells = {
            _find_column(cell.get("r", ""), number): _read_cell(cell, shared, formats, epoch)
            for number, cell in enumerate(row.iter(f"{_MAIN}c"), 1)
        }
        table.append([cells.get(number) for number in range(1, max(cells, default=0) + 1)])
    return table


def _find_date_formats(styles: ElementTree.Element) -> set[int]:
    """Return the numbers of the cell styles that show a number as a date or time."""
    dates = {str(number) for number in (*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59))}
    for each in styles.iter(f"{_MAIN}numFmt"):
        code = re.sub(r'"[^"]*"|\[[^]]*]|\\.', "", each.get("formatCode", ""))
        if re.search(r"[dyhs]", code, re.IGNORECASE):
            dates.add(each.get("numFmtId", ""))
    cells = styles.find(f"{_MAIN}cellXfs")
    return {number for number, each in enumerate([] if cells is None else cells) if each.get("numFmtId") in dates}


def _find_column(reference: str, default: int) -> int:
    number = 0
    for letter in re.match(r"[A-Z]{0,3}", reference)[0]:
        number = number * 26 + ord(letter) - 64
    return number or default


def _read_cell(cell: ElementTree.Element, shared: list[str], dates: set[int], epoch: datetime) -> object:
    kind, value = cell.get("t"), cell.findtext(f"{_MAIN}v")
    if kind == "inlineStr":
        return "".join(part.text or "" for part in cell.iter(f"{_MAIN}t"))
    if value is None:
        return None
    if kind == "s":
        return shared[int(value)]
    if kind == "b":
        return value == "1"
    if kind in ("str", "e", "d"):
        return value
    number = float(value)
    if int(cell.get("s", "0")) in dates and 0 <= number < 2_958_466:  # the year 9999
        moment = epoch + timedelta(seconds=round(number * 86_400))
        return moment.date().isoformat() if number.is_integer() else moment.isoformat()
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


def _write_excel(path: Path, columns: list[str], rows: list[dict]) -> None:
    table = [columns, *([row.get(name) for name in columns] for row in rows)]
    lines = "".join(f"<row>{''.join(map(_format_cell, values))}</row>" for values in table)
    sheet = f'<worksheet xmlns="{_MAIN[1:-1]}"><sheetData>{_number_cells(lines)}</sheetData></worksheet>'
    head = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {**_PACKAGE, "xl/worksheets/sheet1.xml": sheet}.items():
            archive.writestr(name, head + text)


def _format_cell(value: object) -> str:
    if value is None:
        return "<c/>"
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, float) and not math.isfinite(value):
        return "<c/>"
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**15):  # Excel keeps 15 digits
        return f"<c><v>{value!r}</v></c>"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", "", text)
    return f'<c t="inlineStr"><is><t xml:space="preserve">{escape(text)}</t></is></c>'


def _number_cells(lines: str) -> str:
    """Add the reference of each cell, which readers need after an empty one."""
    numbered = []
    for number, row in enumerate(lines.split("<row>")[1:], 1):
        cells = row.split("<c")[1:]
        named = (f'<c r="{_name_column(column)}{number}"{cell}' for column, cell in enumerate(cells, 1))
        numbered.append(f'<row r="{number}">{"".join(named)}')
    return "".join(numbered)


def _name_column(number: int) -> str:
    name = ""
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(65 + letter) + name
    return name
