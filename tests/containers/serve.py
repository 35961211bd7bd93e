"""Start the stub server with the flags and ports of TensorFlow Serving's image."""

import argparse
import os
import sys
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

STUB_SERVER = Path(__file__).with_name("stub_server.py")


def main() -> None:
    """Replace this process by the stub server. Flags that the stub server lacks have no effect."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--model_config_file", type=Path, required=True)
    parser.add_argument("--rest_api_timeout_in_ms", required=True)
    flags, _ = parser.parse_known_args()
    text = flags.model_config_file.read_text(encoding="utf-8")
    config = text_format.Parse(text, model_server_config_pb2.ModelServerConfig())
    (model,) = config.model_config_list.config
    command = [
        *(sys.executable, str(STUB_SERVER), f"--model={model.base_path}", f"--name={model.name}"),
        *("--host=0.0.0.0", "--rest_port=8501", "--grpc_port=8500"),
        f"--rest_api_timeout_in_ms={flags.rest_api_timeout_in_ms}",
        "--file_system_poll_wait_seconds=1",
    ]
    os.execv(sys.executable, command)


if __name__ == "__main__":
    main()
