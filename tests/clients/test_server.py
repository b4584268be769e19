"""What a client can learn about the server and its models."""


def test_the_server_is_live_and_ready(client):
    assert client.is_server_live()
    assert client.is_server_ready()


def test_the_server_announces_the_extensions_it_has(client):
    metadata = client.get_server_metadata()
    assert metadata["name"] == "sluice"
    assert metadata["version"]
    wanted = {
        "binary_tensor_data",
        "model_configuration",
        "model_repository",
        "parameters",
        "schedule_policy",
        "statistics",
    }
    assert wanted <= set(metadata["extensions"])


def test_a_model_is_ready_by_name_and_by_version(client):
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")


def test_an_unknown_model_or_version_is_not_ready(client):
    assert not client.is_model_ready("nosuch")
    assert not client.is_model_ready("digits", "7")


def test_metadata_gives_each_tensor_with_a_batch_dimension(client):
    metadata = client.get_model_metadata("digits")
    assert metadata["name"] == "digits"
    assert metadata["versions"] == ["1"]
    assert metadata["inputs"] == [{"name": "image", "datatype": "FP32", "shape": [-1, 64]}]
    assert metadata["outputs"] == [
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, 10]},
        {"name": "digit", "datatype": "INT64", "shape": [-1, 1]},
    ]


def test_metadata_says_that_a_synthetic_model_is_one(client):
    assert "synthetic" in client.get_model_metadata("echo_pair")["platform"]
    assert "synthetic" not in client.get_model_metadata("digits")["platform"]


def test_config_names_the_tensors_and_the_largest_batch(client):
    config = client.get_model_config("digits")
    assert config["name"] == "digits"
    assert config["max_batch_size"] == 16
    assert "dynamic_batching" in config
    assert [tensor["name"] for tensor in config["input"]] == ["image"]
    assert [tensor["name"] for tensor in config["output"]] == ["probabilities", "digit"]


def test_the_index_lists_every_model_as_ready(client):
    index = client.get_model_repository_index()
    states = {entry["name"]: entry["state"] for entry in index}
    assert states == {
        name: "READY" for name in ("digits", "langid", "echo_bytes", "echo_pair")
    }


def test_statistics_cover_every_model_when_none_is_named(client):
    every = client.get_inference_statistics()["model_stats"]
    assert {entry["name"] for entry in every} == {"digits", "langid", "echo_bytes", "echo_pair"}
