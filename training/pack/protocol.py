"""How well vectors retrieve SKUs: the draws, the measures, the thresholds."""

import numpy as np


class Retrieval:
    """Enrolled views and queries of every SKU, with all their cosines worked out once.

    `gallery` and `queries` map a SKU to unit vectors `[n, 192]`.
    """

    def __init__(self, gallery, queries):
        self.names = sorted(gallery)
        views = [gallery[name] for name in self.names]
        asked = [queries[name] for name in self.names]
        self.cosines = np.concatenate(asked) @ np.concatenate(views).T
        self.view_of = ranges(views)
        self.query_of = ranges(asked)

    def scores(self, queries_of, enrolled):
        """Cosine of each query with the best view of each enrolled SKU, `[queries, skus]`.

        `enrolled` holds, for each SKU, the views drawn.
        """
        rows = np.concatenate([self.query_of[sku] for sku in queries_of])
        best = [self.cosines[np.ix_(rows, views)].max(1) for views in enrolled]
        return np.stack(best, 1)


def ranges(groups):
    ends = np.cumsum([len(group) for group in groups])
    return [np.arange(end - len(group), end) for group, end in zip(groups, ends)]


def auroc(known, strangers):
    """Chance that a known query scores above a stranger, ties counting half."""
    both = np.concatenate([known, strangers])
    ordered = np.sort(both)
    rank = (np.searchsorted(ordered, known) + np.searchsorted(ordered, known, "right") + 1) / 2
    pairs = len(known) * len(strangers)
    return float((rank.sum() - len(known) * (len(known) + 1) / 2) / pairs)


def draw(retrieval, rng, skus, views, groups=None):
    """Which SKUs are enrolled, with which of their views, and which are strangers.

    With `groups`, whole groups (families of siblings) are drawn until there are enough SKUs.
    """
    every = np.arange(len(retrieval.names))
    if groups is None:
        chosen = rng.choice(every, skus, replace=False)
    else:
        size = len(groups[0])
        picked = rng.choice(len(groups), skus // size, replace=False)
        chosen = np.concatenate([groups[i] for i in picked])
    enrolled = [rng.choice(retrieval.view_of[i], views, replace=False) for i in chosen]
    return chosen, enrolled, np.setdiff1d(every, chosen)


def protocol(retrieval, skus, draws=100, views=(1, 2, 3, 4), seed=0, groups=None):
    """`{views: {"top1", "auroc"}}`, means over the draws; the SKUs not drawn are the strangers."""
    rng = np.random.default_rng(seed)
    out = {}
    for k in views:
        right, apart = [], []
        for _ in range(draws):
            chosen, enrolled, others = draw(retrieval, rng, skus, k, groups)
            scores = retrieval.scores(chosen, enrolled)
            truth = np.repeat(np.arange(len(chosen)), [len(retrieval.query_of[i]) for i in chosen])
            right.append((scores.argmax(1) == truth).mean())
            if len(others):
                apart.append(auroc(scores.max(1), retrieval.scores(others, enrolled).max(1)))
        out[k] = {"top1": round(float(np.mean(right)), 4)}
        if apart:
            out[k]["auroc"] = round(float(np.mean(apart)), 4)
    return out


def thresholds(retrieval, skus, views, draws=100, seed=0, margin=0.0, groups=None):
    """What each score threshold does to known packs and to strangers, pooled over the draws.

    Rows of `{"score", "accepted", "right", "mistaken", "false_accept"}`: shares of the known
    queries accepted, accepted rightly and accepted as another SKU; share of strangers accepted.
    `margin` is the least distance to the next SKU that an accepted answer has.
    """
    rng = np.random.default_rng(seed)
    known, right, strangers = [], [], []
    for _ in range(draws):
        chosen, enrolled, others = draw(retrieval, rng, skus, views, groups)
        truth = np.repeat(np.arange(len(chosen)), [len(retrieval.query_of[i]) for i in chosen])
        for target, asked in ((known, chosen), (strangers, others)):
            scores = retrieval.scores(asked, enrolled)
            if asked is chosen:
                right.append(scores.argmax(1) == truth)
            ordered = np.sort(scores, 1)
            far = ordered[:, -1] - ordered[:, -2] >= margin
            target.append(np.where(far, ordered[:, -1], -1.0))
    known, right, strangers = (np.concatenate(x) for x in (known, right, strangers))
    rows = []
    for score in np.arange(0.30, 0.96, 0.05):
        accepted = known >= score - 1e-9
        rows.append(
            {
                "score": round(float(score), 2),
                "accepted": round(float(accepted.mean()), 4),
                "right": round(float((accepted & right).mean()), 4),
                "mistaken": round(float((accepted & ~right).mean()), 4),
                "false_accept": round(float((strangers >= score - 1e-9).mean()), 4),
            }
        )
    return rows
