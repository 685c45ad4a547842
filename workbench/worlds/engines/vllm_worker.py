"""Weight transfer into a vLLM server: what it mixes into its workers, so that a trainer elsewhere can change their weights.

    VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --dtype bfloat16 --logprobs-mode processed_logprobs \\
        --enable-prompt-tokens-details --worker-extension-cls workbench.worlds.engines.vllm_worker.PatchedWeights

The trainer calls the methods through the server's /collective_rpc, which hands on strings. That endpoint lets whoever reaches
it run any method of a worker: it is for a network of one's own.
"""

from __future__ import annotations

import base64

from workbench.worlds.engines.patches import Receiver, WrongChecksum, WrongVersion, from_bytes


class PatchedWeights:
    """Methods of a worker; `model_runner` is vLLM's."""

    model_runner: object

    def workbench_version(self) -> dict[str, object]:
        """Whose weights this worker holds, and of which version; "" and -1 for those it was started with."""
        return {"origin": self._receiver.origin, "version": self._receiver.version}

    def workbench_patch(self, data: str) -> dict[str, object]:
        """Apply a patch (see `patches.to_bytes`) in base64. A refusal is the answer "error": the weights are as before."""
        try:
            patch = from_bytes(base64.b64decode(data))
            fresh = self._receiver.apply(patch)
        except (WrongVersion, WrongChecksum) as error:
            return {"error": str(error), **self.workbench_version()}
        if fresh:
            self.model_runner.model.load_weights(iter(fresh.items()))  # type: ignore[attr-defined]
        return self.workbench_version()

    @property
    def _receiver(self) -> Receiver:
        # vLLM makes its workers without calling the constructor of what it mixes in
        if "_workbench" not in vars(self):
            self._workbench = Receiver()
        return self._workbench


def _keep_weights_in_place() -> None:
    """On a processor vLLM packs its weights into copies that would stay as they were; packing is switched off."""
    try:
        from vllm import _custom_ops  # type: ignore[import-not-found]
        from vllm.platforms import current_platform  # type: ignore[import-not-found]
    except ImportError:
        return
    if current_platform.is_cpu():
        _custom_ops._supports_onednn = False


_keep_weights_in_place()
