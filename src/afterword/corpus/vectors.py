"""Vectors by key: shards of fixed-size binary records that are read in place.

A record is a key of 16 bytes, `d` little-endian float32 and the CRC-32 of both. The key is a hash, so that anything
that has a name or a text has a key of one size. The dimension stands beside the shards in `vectors.json`: a reader with
another one would take every record for a damaged one, and a writer would cut good ones off.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np

from afterword.corpus.manifest import write_whole
from afterword.corpus.records import utf8
from afterword.corpus.shard_folder import REDO, ShardFolder
from afterword.errors import CorruptError, InputError, MismatchError, MissingPartError, SettingError

KEY_BYTES = 16
_CRC_BYTES = 4
_SCAN_BYTES = 1 << 24
_STAMP = "vectors.json"


@dataclass(frozen=True)
class _Index:
    """Where each key is: keys sorted, with the shard and the row that each is at.

    *Shapes:* `keys`, `shards`, `rows` are all `(N,)`.
    """

    sizes: list[int]
    maps: list[np.ndarray]
    keys: np.ndarray
    shards: np.ndarray
    rows: np.ndarray


class VectorShards(ShardFolder):
    """Shards of vectors, `part-00000.vec` and on.

    Args:
        folder: Where the shards are; made at the first write.
        dimension: Length `d` of every vector.
        records_per_shard: How many vectors fill a shard.

    Raises:
        SettingError: `dimension` is not positive.
        MismatchError: The folder holds vectors of another dimension.
    """

    suffix = ".vec"

    def __init__(self, folder: str | Path, dimension: int, records_per_shard: int = 16384) -> None:
        super().__init__(folder, records_per_shard)
        if dimension < 1:
            raise SettingError(f"the dimension of the vectors is {dimension}, it must be at least 1")
        self.dimension = dimension
        self._record = np.dtype([("key", f"V{KEY_BYTES}"), ("vector", "<f4", (dimension,)), ("crc", "<u4")])
        self._index: _Index | None = None
        self._check_stamp()

    @staticmethod
    def key(text: str) -> bytes:
        """Return the 16 bytes that a key is stored as.

        Raises:
            InputError: The text holds a lone surrogate.
        """
        return blake2b(utf8(text), digest_size=KEY_BYTES).digest()

    def append(self, keys: Sequence[str], vectors: np.ndarray) -> None:
        """Add vectors behind those that are there; the system has them all when this returns.

        Args:
            keys: One for each vector.
            vectors: Array of shape `(len(keys), d)`.

        Raises:
            InputError: The shape is another one, or a vector holds NaN or infinity; nothing is written.
            WorkError: Another process is writing, or the disk would not take them.
        """
        array = np.ascontiguousarray(vectors, dtype="<f4")
        if array.shape != (len(keys), self.dimension):
            raise InputError(f"vectors of shape {array.shape} for {len(keys)} keys of dimension {self.dimension}")
        bad = np.flatnonzero(~np.isfinite(array).all(axis=1))
        if bad.size:
            raise InputError(f"the vector of {keys[bad[0]]!r} holds NaN or infinity", int(bad[0]))
        bodies = [self.key(key) + vector.tobytes() for key, vector in zip(keys, array, strict=True)]
        self._append([body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little") for body in bodies])

    def keys(self) -> set[bytes]:
        """Return the stored form of every key, as `key` makes it; a torn last record is passed over."""
        found: set[bytes] = set()
        for rows in self._maps():
            raw = rows["key"].tobytes()
            found.update(raw[at : at + KEY_BYTES] for at in range(0, len(raw), KEY_BYTES))
        return found

    def lookup(self, keys: Sequence[str]) -> np.ndarray:
        """Read vectors from the disk; of a key that was added twice, the first.

        Args:
            keys: Any keys, in any order, each as often as wanted.

        Returns:
            Array of shape `(len(keys), d)`, in the order asked.

        Raises:
            MissingPartError: Keys have no vector; the first is named, and how many there are.
            CorruptError: A vector asked for is damaged; its shard and number are named.
        """
        index = self._fresh_index()
        wanted = np.frombuffer(b"".join(map(self.key, keys)), dtype=f"S{KEY_BYTES}")
        places = np.searchsorted(index.keys, wanted)
        known = places < len(index.keys)
        known[known] = index.keys[places[known]] == wanted[known]
        if not known.all():
            first = keys[int(np.flatnonzero(~known)[0])]
            missing = int((~known).sum())
            raise MissingPartError(f"{self.folder} has no vector for {missing} of {len(keys)} keys, first {first!r}")
        return self._gather(index.maps, index.shards[places], index.rows[places])

    def count(self) -> int:
        """Return how many whole vectors there are."""
        return sum(path.stat().st_size // self._record.itemsize for path in self.paths())

    def blocks(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Go over all vectors in the order in which they were added, without checking them.

        Args:
            size: Most vectors of a block; a block never goes beyond a shard.

        Yields:
            Stored keys of shape `(B,)`, type `S16`, and vectors `(B, d)`: both are views of the mapped file, read
            when they are used.
        """
        for records in self._maps():
            for start in range(0, len(records), size):
                block = records[start : start + size]
                yield block["key"].view(f"S{KEY_BYTES}"), block["vector"]

    def read(self, rows: Sequence[int] | np.ndarray) -> tuple[list[bytes], np.ndarray]:
        """Read records by their place in the order in which they were added, from 0.

        Returns:
            Stored keys, and vectors of shape `(len(rows), d)`.

        Raises:
            CorruptError: There is no such record, or it is damaged; its shard and number are named.
        """
        wanted, maps = np.asarray(rows, dtype=np.int64), self._maps()
        starts = np.cumsum([0, *map(len, maps)])
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < starts[-1]:
            raise CorruptError(f"{self.folder} holds {starts[-1]} vectors, not {wanted.max() + 1}")
        shards = np.searchsorted(starts, wanted, side="right") - 1
        places = wanted - starts[shards]
        vectors = self._gather(maps, shards, places)
        keys = [maps[shard][place]["key"].tobytes() for shard, place in zip(shards, places, strict=True)]
        return keys, vectors

    def _gather(self, maps: list[np.ndarray], shards: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Copy records by shard and row, shard by shard, and check each.

        *Shapes:* `(N,)`, `(N,)` → `(N, d)`.
        """
        vectors = np.empty((len(rows), self.dimension), dtype=np.float32)
        for shard in np.unique(shards):
            here = np.flatnonzero(shards == shard)
            records = maps[shard][rows[here]]
            if (bad := _first_damaged(records)) is not None:
                raise CorruptError(f"{self._path(int(shard))}, record {rows[here[bad]] + 1} is damaged: {REDO}")
            vectors[here] = records["vector"]
        return vectors

    def _fresh_index(self) -> _Index:
        """Return the index, built again if vectors were added since."""
        sizes = [path.stat().st_size for path in self.paths()]
        if self._index is None or self._index.sizes != sizes:
            maps = self._maps()
            # Bytes compare to the end here: numpy fills up with zeros, and all keys have all their 16.
            raw = b"".join(rows["key"].tobytes() for rows in maps)
            keys = np.frombuffer(raw, dtype=f"S{KEY_BYTES}")
            order = np.argsort(keys, kind="stable")
            counts = [len(rows) for rows in maps]
            shards = np.repeat(np.arange(len(maps)), np.array(counts, dtype=np.int64))
            rows = np.concatenate([np.arange(count) for count in counts] or [np.arange(0)])
            self._index = _Index(sizes, maps, keys[order], shards[order], rows[order])
        return self._index

    def _maps(self) -> list[np.ndarray]:
        """Map the whole records of each shard into memory: arrays of shape `(N,)` that are read when used."""
        maps: list[np.ndarray] = []
        for path in self.paths():
            count = path.stat().st_size // self._record.itemsize
            # The system cannot map nothing.
            rows = np.memmap(path, self._record, "r", shape=(count,)) if count else np.empty(0, self._record)
            maps.append(rows)
        return maps

    def _prepare(self) -> None:
        if not self._check_stamp():
            write_whole(self.folder / _STAMP, json.dumps({"dimension": self.dimension}) + "\n")

    def _size_of(self, path: Path, records: int) -> int:
        return records * self._record.itemsize

    def _scan(self, path: Path, is_last: bool) -> tuple[int, int]:
        size, length = path.stat().st_size, self._record.itemsize
        count, torn = divmod(size, length)
        damaged = self._first_damaged_of(path)
        if is_last and (damaged is None or (damaged == count - 1 and not torn)):
            count = count if damaged is None else damaged
        elif damaged is not None or torn:
            raise CorruptError(f"{path}, record {(count if damaged is None else damaged) + 1} is damaged: {REDO}")
        return count, count * length

    def _first_damaged_of(self, path: Path) -> int | None:
        """Return the number of the first record, from 0, whose checksum is wrong; some megabytes are held at a time."""
        length, done = self._record.itemsize, 0
        step = max(1, _SCAN_BYTES // length) * length
        with path.open("rb") as file:
            while data := file.read(step):
                records = np.frombuffer(data, self._record, count=len(data) // length)
                if (bad := _first_damaged(records)) is not None:
                    return done + bad
                done += len(records)
        return None

    def _check_stamp(self) -> bool:
        """Hold the dimension against the one on the disk; False where none is there yet."""
        path = self.folder / _STAMP
        if not path.exists():
            return False
        try:
            found = json.loads(path.read_text(encoding="utf-8"))["dimension"]
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptError(f"{path} does not say a dimension") from error
        if found != self.dimension:
            raise MismatchError(f"{self.folder} holds vectors of dimension {found}, not {self.dimension}")
        return True


def _first_damaged(records: np.ndarray) -> int | None:
    """Return the index of the first record whose checksum is wrong."""
    length = records.dtype.itemsize
    raw = memoryview(records.tobytes())
    for index, crc in enumerate(records["crc"].tolist()):
        if zlib.crc32(raw[index * length : (index + 1) * length - _CRC_BYTES]) != crc:
            return index
    return None
