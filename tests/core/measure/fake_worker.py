"""A measuring process that misbehaves as its first argument says: the protocol's failures without any kernel."""

import json
import os
import sys
import time

IDENTITY = {
    "name": "Fake", "sm": 90, "sm_count": 1, "memory_mhz": 1, "driver": "1", "cuda": "13.0",
    "spec": {"name": "Fake", "sm": 90, "sm_count": 1, "smem_per_block": 1, "smem_per_sm": 1, "l2_bytes": 1,
             "dram_gbs": 1.0, "tensor_tflops": 1.0, "clock_mhz": 1},
}  # fmt: skip


def say(**message: object) -> None:
    print(json.dumps(message), flush=True)


def measured(request: dict, name: str) -> None:
    state = {"sm_mhz": 1, "memory_mhz": 1, "temperature_c": 1, "power_w": 1.0, "throttled": False}
    say(outcome={
        "kind": "measurement", "workload": "w", "candidate": name, "phase": "final", "samples_us": [1.0],
        "relative_l2": 0.0, "max_abs": 0.0, "source": "template", "detail": "", "state": state,
    })  # fmt: skip


def final(scenario: str, request: dict) -> None:
    if scenario == "vendor-crash" and request["vendor"]:
        say(begin="vendor")
        say(begin="cublasLt 13.0.0 algo 1")
        os.abort()
    if scenario == "vendor-fatal" and request["vendor"]:
        say(begin="cublasLt 13.0.0 algo 1")
        say(fatal="CUDA_ERROR_LAUNCH_FAILED")
        os._exit(3)
    if scenario == "between":
        os.abort()
    for item in request["items"]:
        measured(request, item["candidate"]["stem"])


def main() -> None:
    scenario = sys.argv[1]
    if scenario == "exits":
        print("libsomething.so is not there", file=sys.stderr)
        sys.exit(7)
    if scenario == "refuses":
        say(error="no NVIDIA driver on this machine; install one")
        sys.exit(1)
    steps: dict[str, int] = {}
    say(note="NVML is not there")
    say(ready=IDENTITY)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "quit":
            if scenario == "stubborn":
                time.sleep(60)
            return
        if request["do"] == "screen":
            if scenario == "garbage":
                print("Segmentation fault? no: a library that prints", flush=True)
                time.sleep(60)
            if scenario == "array":
                say()
                print("[1, 2]", flush=True)
            if scenario == "error":
                say(error="not a workload key")
                continue
        if request["do"] == "prepare" and scenario == "no-operands":
            os.abort()
        if request["do"] == "vendor":
            say(begin="vendor")
            if scenario == "vendor-crash":
                os.abort()
            steps[request["key"]] = steps.get(request["key"], 2) - 1
            say(more=steps[request["key"]] > 0)
        if request["do"] == "final":
            final(scenario, request)
        say(done=True)


main()
