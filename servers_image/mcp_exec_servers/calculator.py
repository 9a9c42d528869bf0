"""A demo server: arithmetic."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from mcp_exec_servers.command import READS, run

MAX_EXPRESSION: Final = 500
"""Characters of an expression."""
MAX_NUMBER: Final = 1e300
"""Beyond it, results are refused."""

server = MCPServer("calculator", instructions="Arithmetic: single operations, and whole expressions.")

_BINARY: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, exponent: math.pow(base, exponent),
}
_FUNCTIONS: Final[dict[str, Callable[..., float]]] = {
    "abs": abs,
    "ceil": math.ceil,
    "floor": math.floor,
    "max": max,
    "min": min,
    "round": round,
    "sqrt": math.sqrt,
}
_CONSTANTS: Final = {"pi": math.pi, "e": math.e}

Number = Annotated[float, Field(description="A number")]


def checked(action: Callable[[], float]) -> float:
    """The action's result; ToolError where there is none, or none that JSON can say."""
    try:
        result = action()
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (ValueError, OverflowError, TypeError) as error:
        raise ToolError(f"no such number: {error}") from error
    if not math.isfinite(result) or abs(result) > MAX_NUMBER:
        raise ToolError("the result is too large")
    return result


def value_of(node: ast.AST) -> float:
    """The value of a parsed expression; ToolError for anything that is not arithmetic."""
    match node:
        case ast.Expression(body=body):
            return value_of(body)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value_of(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return value_of(operand)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
            return _BINARY[type(kind)](value_of(left), value_of(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*[value_of(argument) for argument in arguments])
    raise ToolError(f"not arithmetic: {ast.unparse(node)[:80]}")


@server.tool(annotations=READS)
def add(a: Number, b: Number) -> float:
    """Adds two numbers."""
    return checked(lambda: a + b)


@server.tool(annotations=READS)
def subtract(a: Number, b: Number) -> float:
    """Takes the second number from the first."""
    return checked(lambda: a - b)


@server.tool(annotations=READS)
def multiply(a: Number, b: Number) -> float:
    """Multiplies two numbers."""
    return checked(lambda: a * b)


@server.tool(annotations=READS)
def divide(a: Number, b: Number) -> float:
    """Divides the first number by the second; an error where the second is 0."""
    return checked(lambda: a / b)


@server.tool(annotations=READS)
def power(base: Number, exponent: Number) -> float:
    """Raises a number to a power."""
    return checked(lambda: math.pow(base, exponent))


@server.tool(annotations=READS)
def evaluate(
    expression: Annotated[
        str, Field(max_length=MAX_EXPRESSION, description="Such as `(1 + 2) * sqrt(16) / pi`", min_length=1)
    ],
) -> float:
    """Works out an expression: + - * / // % **, parentheses, abs, ceil, floor, max, min, round, sqrt, pi, e."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"not an expression: {error}") from error
    return checked(lambda: value_of(tree))


if __name__ == "__main__":
    run(server)
