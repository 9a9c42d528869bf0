"""Bounded text output: the first half is passed on as it comes, of the rest the end is kept in a ring."""

import codecs


class HeadTail:
    """Takes the bytes of a stream and gives back text that holds at most `limit` bytes of them.

    The text that `write` returns, joined and followed by what `finish` returns, is the whole output if it fits into
    the limit, and otherwise its beginning, a line that tells how many bytes were cut, and its end. No character is
    ever split; bytes that aren't UTF-8 count as the replacement character that stands for them.
    """

    def __init__(self, limit: int) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head_left = limit - limit // 2
        self._head_open = True
        self._tail_size = limit // 2
        self._tail = _Ring(0)

    def write(self, data: bytes | bytearray | memoryview) -> str:
        """Take data and return the text that belongs to the head."""
        return self._take(self._decoder.decode(data))

    def finish(self) -> tuple[str, bool]:
        """The text that follows the head, and whether bytes were cut. To be called once."""
        head = self._take(self._decoder.decode(b"", True))
        kept = self._tail.contents()
        cut = self._tail.total - len(kept)
        if not cut:
            return head + kept.decode(), False
        kept = kept.lstrip(_CONTINUATION) if _is_continuation(kept) else kept
        cut = self._tail.total - len(kept)
        return f"{head}\n[... {cut} bytes cut ...]\n{kept.decode()}", True

    def _take(self, text: str) -> str:
        if not self._head_open:
            self._tail.write(text.encode())
            return ""
        data = text.encode()
        if len(data) <= self._head_left:
            self._head_left -= len(data)
            return text
        self._head_open = False
        end = self._head_left
        while end and data[end] & 0xC0 == 0x80:
            end -= 1
        # What a character on the border leaves of the head is the tail's.
        self._tail = _Ring(self._tail_size + self._head_left - end)
        self._tail.write(data[end:])
        return data[:end].decode()


_CONTINUATION = bytes(range(0x80, 0xC0))


def _is_continuation(data: bytes) -> bool:
    return bool(data) and data[0] & 0xC0 == 0x80


class _Ring:
    """The last `size` bytes of what was written."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._buffer = bytearray()
        self._position = 0
        self.total = 0

    def write(self, data: bytes) -> None:
        """Append, in at most two copies."""
        self.total += len(data)
        if len(data) >= self._size:
            self._buffer[:] = data[len(data) - self._size :]
            self._position = 0
            return
        room = self._size - len(self._buffer)
        if room:
            # The buffer grows with the output, so that idle sandboxes and small runs cost nothing.
            self._buffer += data[:room]
            data = data[room:]
        first = min(len(data), self._size - self._position)
        self._buffer[self._position : self._position + first] = data[:first]
        self._buffer[: len(data) - first] = data[first:]
        if data:
            self._position = (self._position + len(data)) % self._size

    def contents(self) -> bytes:
        """What is kept, oldest first."""
        return bytes(self._buffer[self._position :] + self._buffer[: self._position])
