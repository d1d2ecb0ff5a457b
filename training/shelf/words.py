"""Phrases to token ids with a short table of CLIP merges, and the phrases training uses."""

import gzip
import re
from pathlib import Path

CATEGORIES = ["bottle", "can", "box", "carton", "bag", "jar", "tub"]
TAG = "price tag"
PRODUCT = "product"
# "product" is every category but the tag; the index of a phrase here is its class.
CLASSES = [PRODUCT, *CATEGORIES, TAG]

SYNONYMS = {
    PRODUCT: ["product", "products", "item", "grocery item", "packaged product", "retail product",
              "merchandise", "goods on shelf", "package", "pack"],
    "bottle": ["bottle", "bottles", "plastic bottle", "drink bottle", "glass bottle"],
    "can": ["can", "cans", "tin can", "tin", "food can"],
    "box": ["box", "boxes", "cardboard box", "cereal box"],
    "carton": ["carton", "cartons", "milk carton", "juice carton", "drink carton"],
    "bag": ["bag", "bags", "snack bag", "pouch", "chips bag"],
    "jar": ["jar", "jars", "glass jar"],
    "tub": ["tub", "tubs", "cup", "yogurt cup", "yogurt tub"],
    TAG: ["price tag", "price tags", "price label", "shelf label", "price"],
}
NEVER_THERE = ["person", "dog", "cat", "car", "banana", "hand", "phone", "chair", "tree", "bicycle",
               "apple", "shopping cart", "flower", "shoe", "bird", "table", "book", "computer",
               "building", "sky", "face", "guitar", "bread", "egg", "meat"]

PIECES = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|[^\s\w]+|_+")


def byte_alphabet():
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [b for b in range(256) if b not in plain]
    shown = plain + [256 + i for i in range(len(rest))]
    return dict(zip(plain + rest, map(chr, shown)))


def read_table(path):
    """The text of a table of merges, packed with gzip or not."""
    raw = Path(path).read_bytes()
    return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()


class Words:
    """Byte-pair encoding: bytes, bytes at the end of a word, merges, then the start and end marks."""

    def __init__(self, path, context):
        merges = [tuple(line.split()) for line in read_table(path).strip().split("\n")[1:]]
        self.bytes = byte_alphabet()
        alphabet = list(self.bytes.values())
        symbols = alphabet + [a + "</w>" for a in alphabet] + ["".join(m) for m in merges]
        self.ids = {symbol: i for i, symbol in enumerate(symbols)}
        self.rank = {merge: i for i, merge in enumerate(merges)}
        self.start, self.end, self.context = len(symbols), len(symbols) + 1, context

    def word(self, text):
        parts = [self.bytes[b] for b in text.encode()]
        parts[-1] += "</w>"
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda p: self.rank.get(p, len(self.rank)))
            if best not in self.rank:
                break
            joined, i = [], 0
            while i < len(parts):
                if tuple(parts[i : i + 2]) == best:
                    joined.append("".join(best))
                    i += 2
                else:
                    joined.append(parts[i])
                    i += 1
            parts = joined
        return [self.ids[p] for p in parts]

    def encode(self, phrase):
        """Ids of the context length: start, tokens, end, zeros."""
        ids = [self.start]
        for piece in PIECES.findall(phrase.lower().strip()):
            ids += self.word(piece)
        ids = ids[: self.context - 1] + [self.end]
        return ids + [0] * (self.context - len(ids))
