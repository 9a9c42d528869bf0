"""The line that shows models what code finds in a pool."""

from mcp_exec_gateway.mcp.code_mode.prompts import format_environment


def test_a_pool_without_known_libraries_has_no_line() -> None:
    assert format_environment({"name": "default"}) == ""


def test_the_line_names_python_and_the_libraries_in_order() -> None:
    line = format_environment({"python": "3.13.5", "libraries": {"pandas": "2.3.1", "numpy": "2.1.0"}})
    assert line == "Python 3.13.5; libraries: numpy 2.1.0, pandas 2.3.1; nothing can be installed."
    line = format_environment({"python": "3.11.2", "libraries": {}})
    assert line == "Python 3.11.2; libraries: the standard library only; nothing can be installed."


def test_the_line_is_short_whatever_the_image_has() -> None:
    many = {f"library-{number}-{'x' * 100}": "1.0" for number in range(1000)}
    assert len(format_environment({"python": "3.13.5", "libraries": many}).encode()) < 500
