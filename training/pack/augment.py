"""Views of packs: what distance, angle, light and a phone's camera do to them.

Nothing is mirrored and no hue is turned: lettering has a direction, and colour is often all that
tells two variants of a product apart.
"""

import cv2
import numpy as np

cv2.setNumThreads(1)


def window(picture, rng, side, least_area, jitter=0.03, turn_deg=7.0):
    """A window of the picture seen at a slight angle, `[side, side, 3]`.

    `least_area` is the least share of the picture's area that the window covers.
    """
    height, width = picture.shape[:2]
    scale = rng.uniform(least_area, 1) ** 0.5
    w = min(width, width * scale * np.exp(rng.normal(0, 0.08)))
    h = min(height, height * scale * np.exp(rng.normal(0, 0.08)))
    centre_x = width / 2 + (width - w) / 2 * rng.uniform(-0.9, 0.9)
    centre_y = height / 2 + (height - h) / 2 * rng.uniform(-0.9, 0.9)
    turn = np.deg2rad(rng.normal(0, turn_deg))
    cos, sin = np.cos(turn), np.sin(turn)
    corners = np.array([[-w, -h], [w, -h], [w, h], [-w, h]]) / 2
    corners = corners @ np.array([[cos, sin], [-sin, cos]]) + [centre_x, centre_y]
    corners += rng.normal(0, jitter * width, (4, 2))
    target = np.float32([[0, 0], [side, 0], [side, side], [0, side]])
    matrix = cv2.getPerspectiveTransform(np.float32(corners), target)
    return cv2.warpPerspective(
        picture, matrix, (side, side), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT
    )


def cover(view, rng):
    """Lays a flat patch over a part of the view, as a tag, a hand or a rail does."""
    side = len(view)
    w, h = (rng.uniform(0.1, 0.42, 2) * side).astype(int)
    x = int(rng.uniform(0, side - w))
    y = int(rng.uniform(0, side - h))
    if rng.random() < 0.5:
        x = 0 if rng.random() < 0.5 else side - w
    view[y : y + h, x : x + w] = rng.uniform(0, 255, 3)
    return view


def light(view, rng):
    """Exposure, white balance, saturation, contrast, falling light, blur, small size, noise."""
    x = view.astype(np.float32)
    x *= rng.uniform(0.55, 1.35) * (1 + rng.uniform(-0.14, 0.14, 3)).astype(np.float32)
    if rng.random() < 0.5:
        grey = x.mean(-1, keepdims=True)
        x = grey + (x - grey) * np.float32(rng.uniform(0.6, 1.35))
    if rng.random() < 0.5:
        x = 128 + (x - 128) * np.float32(rng.uniform(0.65, 1.2))
    side = len(x)
    if rng.random() < 0.35:
        angle = rng.uniform(0, 2 * np.pi)
        along = np.linspace(-0.5, 0.5, side, dtype=np.float32)
        ramp = along[None] * np.cos(angle) + along[:, None] * np.sin(angle)
        x *= (1 + rng.uniform(0, 0.7) * ramp)[..., None].astype(np.float32)
    kind = rng.random()
    if kind < 0.3:
        x = cv2.GaussianBlur(x, (0, 0), rng.uniform(0.3, 1.6))
    elif kind < 0.4:
        length = int(rng.integers(2, 7))
        kernel = np.zeros((length, length), np.float32)
        kernel[length // 2] = 1 / length
        x = cv2.filter2D(x, -1, kernel if rng.random() < 0.6 else kernel.T)
    if rng.random() < 0.35:
        small = max(8, int(side * rng.uniform(0.25, 0.8)))
        x = cv2.resize(x, (small, small), interpolation=cv2.INTER_AREA)
        x = cv2.resize(x, (side, side), interpolation=cv2.INTER_LINEAR)
    if rng.random() < 0.4:
        x += rng.standard_normal(x.shape, np.float32) * np.float32(rng.uniform(1, 10))
    return np.clip(x, 0, 255).astype(np.uint8)


def photo_view(picture, rng, side, least_area):
    """One training view of a photo."""
    out = window(picture, rng, side, least_area)
    if rng.random() < 0.15:
        out = cover(out, rng)
    return light(out, rng)


def drawn_view(picture, rng, side):
    """One training view of a drawn pack, which was drawn in some light and from some angle already.

    Half of them are brought to size as the product does it and stay as they are.
    """
    if rng.random() < 0.5:
        return cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA)
    return photo_view(picture, rng, side, 0.7)
