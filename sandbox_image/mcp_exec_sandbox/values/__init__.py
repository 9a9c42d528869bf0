"""JSON of Python values: as results of code, where everything gets a form, and as arguments of tools, where what JSON
cannot express is refused. docs/reference/values.md has the forms."""
