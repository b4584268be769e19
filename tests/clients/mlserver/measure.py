"""A model of one's own for MLServer: how long words are, times a scale."""

import os
import signal

import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec, StringCodec
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, InferenceResponse


class Measure(MLModel):
    """Refuses the word `refuse` and dies of the word `die`."""

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        inputs = {given.name: given for given in payload.inputs}
        shape = inputs["words"].shape
        words = StringCodec.decode_input(inputs["words"])
        scale = NumpyCodec.decode_input(inputs["scale"])
        if "refuse" in words:
            raise MLServerError("there is a word I do not measure", status_code=400)
        if "die" in words:
            os.kill(os.getpid(), signal.SIGKILL)
        lengths = np.array([len(word) for word in words], np.float32).reshape(shape) * scale
        return InferenceResponse(
            model_name=self.name,
            outputs=[
                NumpyCodec.encode_output("lengths", lengths),
                StringCodec.encode_output("echo", words).model_copy(update={"shape": shape}),
            ],
        )
