"""Spoken digits as pictures: recordings of the Free Spoken Digit Dataset, one second each, as log-mel energies in bytes.

Needs numpy and the standard library only.
"""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

CLASSES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 8000  # samples per second of every recording
WINDOW, HOP, BANDS = 256, 160, 32  # 32 ms windows every 20 ms, 32 mel bands
FRAMES = 1 + (RATE - WINDOW) // HOP  # of one second: 49
FLOOR_DB = 80.0  # quieter than the loudest band of a recording by more: zero
HELD_BACK = 17  # recordings 0 to 16 of every speaker and digit are never trained on: 1,020 of 3,000


def mel_filters() -> NDArray[np.float64]:
    """Triangles of equal width on the mel scale, from 60 Hz to 4 kHz: ``(BANDS, WINDOW / 2 + 1)``."""
    low, high = (2595 * np.log10(1 + f / 700) for f in (60.0, RATE / 2))
    edges = 700 * (10 ** (np.linspace(low, high, BANDS + 2) / 2595) - 1)
    f = np.fft.rfftfreq(WINDOW, 1 / RATE)
    rising = (f - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - f) / np.diff(edges)[1:, None]
    return np.maximum(0, np.minimum(rising, falling))


def picture(sound: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Log-mel energies of one second, in bytes: 255 is the loudest band, 0 is 80 dB below. Shape ``(FRAMES, BANDS)``."""
    start = max(0, (len(sound) - RATE) // 2)
    cut = sound[start:start + RATE]
    left = (RATE - len(cut)) // 2
    second = np.pad(cut, (left, RATE - len(cut) - left))
    windows = np.lib.stride_tricks.sliding_window_view(second, WINDOW)[::HOP] * np.hanning(WINDOW)
    energy = np.abs(np.fft.rfft(windows)) ** 2 @ mel_filters().T
    decibels = 10 * np.log10(np.maximum(energy, 1e-12) / max(energy.max(), 1e-12))
    return np.rint(np.clip(1 + decibels / FLOOR_DB, 0, 1) * 255).astype(np.uint8)


def read(path: Path) -> NDArray[np.float64]:
    """One recording: 16-bit samples at 8 kHz, one channel."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise ValueError(f"{path}: not a 16-bit recording of one channel at {RATE} Hz")
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2") / 32768.0


def load(folder: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """All recordings ``DIGIT_SPEAKER_NUMBER.wav`` of a folder, in the order of their names.

    Returns:
        Pictures ``(N, 1, FRAMES, BANDS)``, digits ``(N,)``, and which are held back.
    """
    files = sorted(folder.glob("*_*_*.wav"))
    if not files:
        raise FileNotFoundError(f"{folder}: no recordings; get them with\n"
                                "    git clone https://github.com/Jakobovski/free-spoken-digit-dataset")
    parts = [f.stem.split("_") for f in files]
    pictures = np.stack([picture(read(f)) for f in files])[:, None]
    return pictures, np.array([int(p[0]) for p in parts]), np.array([int(p[2]) < HELD_BACK for p in parts])
