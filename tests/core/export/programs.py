"""C and C++ programs against exported folders, compiled with the host compiler alone."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent


def build_program(source: Path, folders: Sequence[Path], out: Path) -> Path:
    """Compile one file and link it with the libraries of exported folders, which are found where they lie."""
    compiler = ["gcc"] if source.suffix == ".c" else ["g++", "-std=c++17", "-pthread"]
    command = [*compiler, "-Wall", "-Wextra", "-Werror", str(source), "-o", str(out)]
    command += [f"-I{folder / 'include'}" for folder in folders]
    for folder in folders:
        library = next(folder.glob("lib*.so"))
        command += [f"-L{folder}", f"-l{library.stem.removeprefix('lib')}", f"-Wl,-rpath,{folder}"]
    subprocess.run(command, check=True)
    return out


def output_of(program: Path, *arguments: str) -> str:
    """What it prints, in a process that has nothing of this one's environment but the paths of the GPU's driver."""
    paths = {k: v for k, v in os.environ.items() if k in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")}
    return subprocess.run([program, *arguments], check=True, capture_output=True, text=True, env=paths).stdout
