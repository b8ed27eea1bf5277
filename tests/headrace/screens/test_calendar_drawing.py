"""Calendars of partitions: where a cell is, how full it is, and that any cells make a whole drawing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from headrace.screens.calendar_drawing import MOST_ROWS, Cell, calendar_svg

SVG = "{http://www.w3.org/2000/svg}"
START = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday


def drawn(*cells: Cell) -> list[tuple[str, str, float]]:
    """The title, the row's text and the height of the full part of each cell."""
    root = ElementTree.fromstring(calendar_svg(cells, "hit", "miss"))
    names = {float(one.attrib["y"]) - 16: one.text or "" for one in root.iter(f"{SVG}text") if one.get("text-anchor") == "end"} if cells else {}  # fmt: skip
    found = []
    for group in root.iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        cell, full = group.findall(f"{SVG}rect")
        assert title is not None
        found.append((title.text or "", names[float(cell.attrib["y"])], float(full.attrib["height"])))
    return found


def test_hours_are_columns_of_days() -> None:
    cells = [Cell(START + timedelta(hours=hour), 1.0, f"h{hour}") for hour in (0, 5, 30)]
    assert drawn(*cells) == [("h0", "2026-03-02", 23.0), ("h5", "2026-03-02", 23.0), ("h30", "2026-03-03", 23.0)]


def test_days_are_columns_of_weeks() -> None:
    cells = [Cell(START + timedelta(days=day), 0.5, f"d{day}") for day in (0, 6, 8)]
    assert drawn(*cells) == [("d0", "2026-03-02", 11.5), ("d6", "2026-03-02", 11.5), ("d8", "2026-03-09", 11.5)]


def test_the_emptiest_of_cells_in_one_place_is_seen() -> None:
    assert drawn(Cell(START, 1.0, "full"), Cell(START, 0.25, "part"), Cell(START, 0.5, "half"))[0][0] == "part"


def test_times_are_utc() -> None:
    east = datetime.fromisoformat("2026-03-02T01:00+05:00")
    assert drawn(Cell(east, 1.0, "x"))[0][1] == "2026-03-01"


@given(
    st.lists(
        st.builds(
            Cell,
            st.datetimes(datetime(1970, 1, 9), datetime(2200, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
            st.floats(0, 1),
            st.text(max_size=20),
        ),
        max_size=40,
    )
)
def test_any_cells_make_a_whole_drawing(cells: list[Cell]) -> None:
    root = ElementTree.fromstring(calendar_svg(cells, "hit", "miss"))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    rows = {one.attrib["y"] for one in root.iter(f"{SVG}rect") if one.attrib["class"] in ("cell", "none")}
    assert len(list(root)) > 3
    assert len(rows) <= MOST_ROWS + 1
    for one in root.iter(f"{SVG}rect"):
        assert 0 <= float(one.attrib["x"]) <= width
        assert 0 <= float(one.attrib["y"]) + float(one.attrib["height"]) <= height
