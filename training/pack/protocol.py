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


def draw(retrieval, rng, skus, views, groups=None, siblings="enrolled"):
    """Which SKUs are enrolled, with which of their views, and which are strangers.

    With `groups` (families of siblings), whole families are drawn; or, with `siblings="strangers"`,
    one of each is enrolled and the others are the only strangers.
    """
    every = np.arange(len(retrieval.names))
    others = None
    if groups is None:
        chosen = rng.choice(every, skus, replace=False)
    elif siblings == "enrolled":
        picked = rng.choice(len(groups), skus // len(groups[0]), replace=False)
        chosen = np.concatenate([groups[i] for i in picked])
    else:
        families = [rng.permutation(groups[i]) for i in rng.choice(len(groups), skus, replace=False)]
        chosen = np.array([family[0] for family in families])
        others = np.concatenate([family[1:] for family in families])
    enrolled = [rng.choice(retrieval.view_of[i], views, replace=False) for i in chosen]
    return chosen, enrolled, np.setdiff1d(every, chosen) if others is None else others


def protocol(retrieval, skus, draws=100, views=(1, 2, 3, 4), seed=0, **drawing):
    """`{views: {"top1", "auroc"}}`, means over the draws; the SKUs not drawn are the strangers."""
    rng = np.random.default_rng(seed)
    out = {}
    for k in views:
        right, apart = [], []
        for _ in range(draws):
            chosen, enrolled, others = draw(retrieval, rng, skus, k, **drawing)
            scores = retrieval.scores(chosen, enrolled)
            truth = np.repeat(np.arange(len(chosen)), [len(retrieval.query_of[i]) for i in chosen])
            right.append((scores.argmax(1) == truth).mean())
            if len(others):
                apart.append(auroc(scores.max(1), retrieval.scores(others, enrolled).max(1)))
        out[k] = {"top1": round(float(np.mean(right)), 4)}
        if apart:
            out[k]["auroc"] = round(float(np.mean(apart)), 4)
    return out


def pooled(retrieval, skus, views, draws=100, seed=0, **drawing):
    """Score and margin of every answer over the draws, `[n, 2]` each for known queries and for
    strangers, and which of the known ones are right."""
    rng = np.random.default_rng(seed)
    known, right, strangers = [], [], []
    for _ in range(draws):
        chosen, enrolled, others = draw(retrieval, rng, skus, views, **drawing)
        truth = np.repeat(np.arange(len(chosen)), [len(retrieval.query_of[i]) for i in chosen])
        for answers, asked in ((known, chosen), (strangers, others)):
            scores = retrieval.scores(asked, enrolled)
            if asked is chosen:
                right.append(scores.argmax(1) == truth)
            best = np.sort(scores, 1)[:, -2:]
            answers.append(np.stack([best[:, 1], best[:, 1] - best[:, 0]], 1))
    return np.concatenate(known), np.concatenate(right), np.concatenate(strangers)


def outcome(known, right, strangers, score, margin):
    """Shares of the known queries accepted rightly and as another SKU, and of strangers accepted."""
    accepted = (known[:, 0] >= score) & (known[:, 1] >= margin)
    let_in = (strangers[:, 0] >= score) & (strangers[:, 1] >= margin)
    return {
        "score": round(float(score), 2),
        "margin": float(margin),
        "right": round(float((accepted & right).mean()), 4),
        "mistaken": round(float((accepted & ~right).mean()), 4),
        "false_accept": round(float(let_in.mean()), 4),
    }


def thresholds(retrieval, skus, views, draws=100, seed=0, **drawing):
    """What thresholds do: a table over the score alone, and the pair of score and margin that names
    most known packs while no more than 5 % (10 %) of the strangers are let in."""
    answers = pooled(retrieval, skus, views, draws, seed, **drawing)
    out = {"table": [outcome(*answers, score, 0.0) for score in np.arange(0.4, 0.91, 0.05)]}
    # A table finer than the draws can tell apart would only take longer.
    tried = [
        outcome(*answers, score, margin)
        for score in np.arange(0.3, 0.95, 0.02)
        for margin in (0.0, 0.02, 0.05, 0.1, 0.15, 0.2)
    ]
    for target in (0.05, 0.1):
        within = [row for row in tried if row["false_accept"] <= target]
        out[f"at most {target:.0%} of strangers"] = max(within, key=lambda row: row["right"])
    return out
