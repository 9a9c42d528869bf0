import asyncio

from mcp_exec_gateway.memory import Memory


class Source:
    """Counts how often it is asked; answers when it may."""

    def __init__(self, answer: str = "yes") -> None:
        self.answer, self.asked = answer, 0
        self.may, self.begun = asyncio.Event(), asyncio.Event()
        self.may.set()

    async def __call__(self) -> str:
        self.asked += 1
        self.begun.set()
        await self.may.wait()
        if self.answer == "error":
            raise ValueError("no answer")
        return self.answer


async def test_an_answer_is_good_for_its_lifetime() -> None:
    now = [0.0]
    memory = Memory[str](lifetime=lambda answer: {"yes": 60.0, "no": 5.0}[answer], clock=lambda: now[0])
    for answer, seconds in (("yes", 60.0), ("no", 5.0)):
        source = Source(answer)
        for moment, asked in ((0.0, 1), (seconds - 0.1, 1), (seconds, 2)):
            now[0] = moment
            assert await memory.get(answer, source) == answer
            assert source.asked == asked


async def test_the_same_question_at_once_is_asked_once() -> None:
    memory, source = Memory[str](lifetime=lambda _: 60), Source()
    source.may.clear()
    asking = [asyncio.create_task(memory.get("q", source)) for _ in range(10)]
    await source.begun.wait()
    asking[0].cancel()
    source.may.set()
    answers = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == ["yes"] * 9
    assert source.asked == 1


async def test_an_error_is_told_to_all_and_not_remembered() -> None:
    memory, source = Memory[str](lifetime=lambda _: 60), Source("error")
    answers = await asyncio.gather(*(memory.get("q", source) for _ in range(3)), return_exceptions=True)
    assert all(isinstance(answer, ValueError) for answer in answers)
    source.answer = "yes"
    assert await memory.get("q", source) == "yes"


async def test_the_one_unused_for_longest_makes_room() -> None:
    memory, source = Memory[str](lifetime=lambda _: 60, size=2), Source()
    for question in ("a", "b", "a", "c"):
        await memory.get(question, source)
    assert source.asked == 3
    await memory.get("a", source)
    assert source.asked == 3
    await memory.get("b", source)
    assert source.asked == 4


async def test_an_answer_without_lifetime_is_not_kept() -> None:
    memory, source = Memory[str](lifetime=lambda _: -1), Source()
    await memory.get("q", source)
    await memory.get("q", source)
    assert source.asked == 2
