"""Tables on a narrow terminal: numbers stay, and names lose their middle but still differ."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from pipelines.base.short_names import shortened
from pipelines.faces.cli import console
from pipelines.faces.cli.answer_table import print_answer
from pipelines.faces.cli.console import make_console, new_table, print_rows
from pipelines.faces.cli.lake.query import _cell
from pipelines.faces.cli.narrow_tables import LEAST, Kind, fit

NAMES = st.lists(
    st.text("abX<>, ", min_size=0, max_size=60).map(lambda middle: f"void at::native::kernel<{middle}>(int, float)")
    | st.text(max_size=40),
    max_size=12,
)


@given(NAMES, st.integers(8, 70))
def test_names_fit_and_differ(names: list[str], width: int) -> None:
    shown = shortened(names, width)
    assert all(len(text) <= width for text in shown)
    assert len(set(shown)) == len(set(names))
    assert all(a == b for a, b in zip(names, shown, strict=True) if len(a) <= width and "~" not in b)


def test_what_differs_in_the_middle_is_shown() -> None:
    names = [
        f"void at::native::elementwise_kernel<128, 4, {kind}Functor<float>>(int, Array<char*, 3>)"
        for kind in ("Add", "Mul")
    ]
    first, second = shortened(names, 40)
    assert "Add" in first and "Mul" in second
    assert first.startswith("void at::n") and first.endswith("char*, 3>)")


def test_a_heading_says_how_its_column_is_aligned_and_whether_it_folds() -> None:
    table = new_table("cut", ">number", "~file", ">~time", title="title")
    columns = [(column.header, column.justify, column.overflow) for column in table.columns]
    assert columns == [
        *(("cut", "left", "ellipsis"), ("number", "right", "ellipsis")),
        *(("file", "left", "fold"), ("time", "right", "fold")),
    ]


def test_names_of_tables_lose_no_letters_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(console, "out", make_console(file=text, width=40))
    print_rows(("layer", "table", "one row"), [("critical_path", "critical_path_by_operator", "an operator")], False)
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.getvalue().splitlines() if "│" in line]
    assert ["".join(column) for column in zip(*cells, strict=True)][:2] == [
        "critical_path",
        "critical_path_by_operator",
    ]


def test_a_line_is_not_wrapped() -> None:
    text = io.StringIO()
    make_console(file=text, width=10).line("[bold]{}[/]: {:,}", "a long [name]", 1234)
    assert text.getvalue() == "a long [name]: 1,234\n"


def test_beginning_and_end_stay() -> None:
    assert shortened(["ampere_sgemm_128x64_tn_very_long_name_of_a_kernel_v2"], 20) == ["ampere_sge…kernel_v2"]


@pytest.mark.slow  # tests/faces/cli/test_first_hour.py tests a wide answer
@given(NAMES.filter(bool), st.lists(st.integers(0, 10**12), min_size=1), st.integers(40, 120))
def test_numbers_stay(names: list[str], numbers: list[int], width: int) -> None:
    columns = [["name", *names], ["ns", *map(str, numbers)], ["detail", "a sentence that is folded where it must be"]]
    fitted = fit(columns, [Kind.NAME, Kind.WHOLE, Kind.PROSE], width)
    assert fitted.columns[1:] == columns[1:]
    assert fitted.has_room  # 13 digits, and two columns of LEAST
    widths = [max(map(len, column)) for column in columns]
    if sum(widths) <= width - 10:
        assert fitted.columns == columns
    assert max(map(len, fitted.columns[0])) + widths[1] + min(LEAST, widths[2]) <= width - 10


def test_a_table_without_room_is_left_to_folding() -> None:
    numbers = [[f"n{number}", "1234567890123"] for number in range(8)]
    assert not fit(numbers, [Kind.WHOLE] * 8, 80).has_room


def test_a_pipe_gets_whole_names() -> None:
    columns = [["name", "a" * 500], ["ns", "1"]]
    assert fit(columns, [Kind.NAME, Kind.WHOLE], 80, shorten=False) == (columns, True)
    assert len(fit(columns, [Kind.NAME, Kind.WHOLE], 80).columns[0][1]) < 80


def test_a_row_as_a_block_has_names_as_people_say_them() -> None:
    name = "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int)"
    columns = [["name", name], *([f"count_{n}", "123456789"] for n in range(8))]
    kinds = [Kind.NAME, *[Kind.WHOLE] * 8]
    for is_terminal in (True, False):
        to = Console(width=60, file=io.StringIO(), force_terminal=is_terminal, color_system=None)
        assert not print_answer(to, columns, kinds, [False] * 9)
        said = to.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
        assert ("elementwise Mul f32" in said) == is_terminal and ("at::native" in said) != is_terminal


def test_a_name_in_a_narrow_column_takes_lines_before_it_loses_letters() -> None:
    columns = [["cause", "initialization"], *([f"count_{n}", "123456789"] for n in range(8))]
    kinds = [Kind.NAME, *[Kind.WHOLE] * 8]
    to = Console(width=110, file=io.StringIO(), force_terminal=True, color_system=None)
    assert print_answer(to, columns, kinds, [False] * 9)
    cells = [line.split("│")[1].strip() for line in to.file.getvalue().splitlines() if "│" in line]  # pyright: ignore[reportAttributeAccessIssue]
    assert len(cells) > 1 and "".join(cells) == "initialization"


def test_counts_have_their_thousands_apart_and_what_names_something_has_not() -> None:
    counted = {"n_kernels": (2234, "2,234"), "bytes": (5746640, "5,746,640"), "is_new": (True, "True")}
    named = {"rank": 1024, "waiting_stream": 1007, "event_id": 123456, "start_ns": 2234, "correlation": 4711}
    asked = counted | {"step_ms": (0.5, "0.5")} | {name: (value, str(value)) for name, value in named.items()}
    assert {name: _cell(name, value) for name, (value, _) in asked.items()} == {
        name: text for name, (_, text) in asked.items()
    }
