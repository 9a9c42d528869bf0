"""Demo server: arithmetic."""

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
"""Most characters of an expression."""
MAX_NUMBER: Final = 1e300
"""Largest magnitude of a result."""

server = MCPServer("calculator", instructions="Arithmetic: single operations and whole expressions.")

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


def calculate(operation: Callable[[], float]) -> float:
    """Return the result of an operation. Raises ToolError if it has none, or one that JSON cannot represent."""
    try:
        result = operation()
    except ZeroDivisionError:
        raise ToolError("division by zero") from None
    except (ValueError, OverflowError, TypeError) as error:
        raise ToolError(f"the result is not a number: {error}") from error
    if not math.isfinite(result) or abs(result) > MAX_NUMBER:
        raise ToolError("the result is too large")
    return result


def evaluate_node(node: ast.AST) -> float:
    """Return the value of a parsed expression. Raises ToolError for anything that is not arithmetic."""
    match node:
        case ast.Expression(body=body):
            return evaluate_node(body)
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -evaluate_node(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return evaluate_node(operand)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _BINARY:
            return _BINARY[type(kind)](evaluate_node(left), evaluate_node(right))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*[evaluate_node(argument) for argument in arguments])
    raise ToolError(f"not arithmetic: {ast.unparse(node)[:80]}")


@server.tool(annotations=READS)
def add(a: Number, b: Number) -> float:
    """Add two numbers."""
    return calculate(lambda: a + b)


@server.tool(annotations=READS)
def subtract(a: Number, b: Number) -> float:
    """Subtract the second number from the first."""
    return calculate(lambda: a - b)


@server.tool(annotations=READS)
def multiply(a: Number, b: Number) -> float:
    """Multiply two numbers."""
    return calculate(lambda: a * b)


@server.tool(annotations=READS)
def divide(a: Number, b: Number) -> float:
    """Divide the first number by the second; fails if the second is 0."""
    return calculate(lambda: a / b)


@server.tool(annotations=READS)
def power(base: Number, exponent: Number) -> float:
    """Raise a number to a power."""
    return calculate(lambda: math.pow(base, exponent))


@server.tool(annotations=READS)
def evaluate(
    expression: Annotated[
        str, Field(max_length=MAX_EXPRESSION, description="Such as `(1 + 2) * sqrt(16) / pi`", min_length=1)
    ],
) -> float:
    """Evaluate an expression: + - * / // % **, parentheses, abs, ceil, floor, max, min, round, sqrt, pi, e."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"not an expression: {error}") from error
    return calculate(lambda: evaluate_node(tree))


if __name__ == "__main__":
    run(server)
