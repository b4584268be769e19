#!/usr/bin/env python3
"""Asks a running `sluice up` about ten handwritten digits and a few sentences.

    pip install 'tritonclient[http]'
    python examples/client.py [HOST:PORT]
"""

import json
import sys
from pathlib import Path

import numpy as np
import tritonclient.http as triton

LANGUAGES = ["de", "en", "es", "fr", "it", "nl", "pt", "sv"]
TEXT_BYTES = 256


def read_digits(client, images):
    """One request with every image; returns each image's digit and how sure the model is."""
    image = triton.InferInput("image", images.shape, "FP32")
    image.set_data_from_numpy(images)
    result = client.infer("digits", [image])
    return result.as_numpy("digit")[:, 0], result.as_numpy("probabilities").max(axis=1)


def guess_languages(client, sentences):
    """One request with every sentence, each cut or zero-padded to 256 bytes of UTF-8."""
    rows = [sentence.encode()[:TEXT_BYTES].ljust(TEXT_BYTES, b"\0") for sentence in sentences]
    bytes_in = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), TEXT_BYTES)
    text = triton.InferInput("text", bytes_in.shape, "UINT8")
    text.set_data_from_numpy(bytes_in)
    result = client.infer("langid", [text])
    return [LANGUAGES[index] for index in result.as_numpy("language")[:, 0]]


def main():
    client = triton.InferenceServerClient(sys.argv[1] if len(sys.argv) > 1 else "localhost:8000")
    samples = json.loads((Path(__file__).parent / "digits.json").read_text())
    images = np.array([sample["image"] for sample in samples], np.float32)
    digits, sure = read_digits(client, images)
    for sample, digit, share in zip(samples, digits, sure):
        print(f"written {sample['digit']}, read {digit}, sure {share:.3f}")
    sentences = ["Where is the station?", "Wo ist der Bahnhof?", "Var ligger stationen?"]
    for sentence, language in zip(sentences, guess_languages(client, sentences)):
        print(f"{language}  {sentence}")


if __name__ == "__main__":
    main()
