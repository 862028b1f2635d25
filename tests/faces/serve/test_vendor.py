"""The grid's files and license, which match the release that source.json names."""

from __future__ import annotations

import json

from tests.faces.serve.vendor import FILES, FOLDER, SOURCE, checksum


def test_the_files_are_as_they_were_fetched() -> None:
    source = json.loads(SOURCE.read_text())
    assert {path.name for path in FOLDER.iterdir()} == {*FILES, SOURCE.name} == {*source["sha256"], SOURCE.name}
    for name, digest in source["sha256"].items():
        assert checksum((FOLDER / name).read_bytes()) == digest, name
    assert source["license"] == "MIT" and "MIT License" in (FOLDER / "LICENSE").read_text()
    assert f"Tabulator v{source['version']} ".encode() in (FOLDER / "tabulator.min.js").read_bytes()[:200]
    assert source["tarball"].endswith(f"-{source['version']}.tgz")


def test_no_file_of_the_page_names_another_site() -> None:
    for path in (FOLDER.parent / "page").iterdir():
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert (
            "//" not in text.replace(" // ", "").replace("\n// ", "").replace("// ", "").replace("://", "//")
            or "http" not in text
        ), path
    style = (FOLDER / "tabulator_simple.min.css").read_text()
    assert "url(" not in style and "@import" not in style
