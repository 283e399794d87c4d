"""Pictures and the HTML report: what is in them, and what a real browser makes of them."""

import base64
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from experiments.report.figures import draw_sweep
from experiments.report.html import Finding, Picture, render, write_report
from experiments.report.style import save
from experiments.results.verdicts import Verdict
from experiments.sweeps.cells import MeanCell
from experiments.sweeps.engine import run_sweep
from experiments.sweeps.grid import Grid

BASE = MeanCell(dim=200, clients=10, sparsity=5, compression=3, n_rows=5)


@pytest.fixture(scope="module")
def curves():
    grid = Grid(
        {"sparsity": (3, 10, 30)},
        BASE,
        encoders=("count_sketch", "gaussian"),
        decoders=("linear", "ridge", "amp"),
        seeds=3,
    )
    return run_sweep(grid)


@pytest.fixture(scope="module")
def matrix():
    grid = Grid({"n_bits": (3, 12, 16), "compression": (1, 4)}, BASE, decoders=("linear",), seeds=2)
    return run_sweep(grid)


def test_curves_show_every_decoder_a_band_and_the_theory(curves, tmp_path):
    figure = draw_sweep(curves)
    save(figure, tmp_path / "curves")
    count, gauss = figure.axes
    labels = count.get_legend_handles_labels()[1]
    assert {"linear", "ridge", "amp", "theory: linear"} <= set(labels)
    assert any("lower bound" in label for label in labels)
    assert count.get_xscale() == count.get_yscale() == "log"
    assert len(count.collections) >= 4  # bands and the shaded bound
    drawn = next(line for line in count.lines if line.get_label() == "amp")
    wanted = [
        row.interval.mean
        for row in curves.summary()
        if row.setting["decoder"] == "amp" and row.setting["encoder"] == "count_sketch"
    ]
    assert drawn.get_ydata().tolist() == pytest.approx(wanted)
    assert gauss.get_title() == "gaussian"
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    ET.parse(tmp_path / "curves.svg")


def test_a_heat_map_has_numbers_bits_a_frame_and_dashes(matrix):
    figure = draw_sweep(matrix)
    panel = figure.axes[0]
    texts = [text.get_text() for text in panel.texts]
    assert texts.count("–") == 2  # three bits hold nothing
    assert "12 b" in texts
    assert len([patch for patch in panel.patches if not patch.get_fill()]) == 1
    places = [{"n_bits": 12, "compression": 4.0}, {"n_bits": 16, "compression": 1}]
    marked = draw_sweep(matrix, marked=places)
    assert len([patch for patch in marked.axes[0].patches if not patch.get_fill()]) == 2


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes

    def handle_data(self, data):
        self.words.append(data)


def section(table, title="a title", lines=("a conclusion",)):
    return Finding(title, "a question?", lines, {"": Picture(draw_sweep(table), title)})


def test_the_report_is_one_page_without_scripts_or_links(curves, matrix):
    html = render("both", [section(curves), section(matrix)], command="sparse-secagg sweep --x")
    page = Page(html)
    assert "script" not in page.tags
    assert "link" not in page.tags
    sources = [value for name, value in page.attributes if name in ("src", "href")]
    assert len(sources) == 2
    for source in sources:
        kind, _, data = source.partition(";base64,")
        assert kind == "data:image/svg+xml"
        ET.fromstring(base64.b64decode(data))
    text = " ".join(page.words)
    assert "sparse-secagg sweep --x" in text
    assert "a conclusion" in text


def test_whatever_is_written_in_the_report_is_escaped(curves):
    nasty = '<script>alert("x")</script>&"'
    verdicts = [Verdict(nasty, "does not hold", (nasty,))]
    found = replace(section(curves, nasty, [nasty]), verdicts=verdicts)
    html = render(nasty, [found], command=nasty)
    assert "<script" not in html
    assert "does not hold" in html
    assert "&lt;script&gt;" in html


FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--window-size=1000,2400",
]


def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


def open_in_browser(page, folder):
    """Return the document after layout, the browser's messages and the screenshot's bytes."""
    common = [browser(), *FLAGS, f"--user-data-dir={folder / 'profile'}"]
    shot = folder / "shot.png"
    subprocess.run(
        [*common, f"--screenshot={shot}", page.as_uri()],
        check=True,
        timeout=120,
        capture_output=True,
    )
    done = subprocess.run(
        [*common, "--dump-dom", page.as_uri()],
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    return done.stdout, done.stderr, shot.read_bytes()


def check_in_browser(table, folder):
    """Open the report with a script of ours that measures its figures, and look at the console."""
    report = write_report(folder / "report.html", "sparsity", [section(table)])
    probe = (
        "<script>addEventListener('load', () => { document.title = "
        "[...document.images].map(i => `${i.naturalWidth}x${i.width}x${i.height}`).join(' ') });"
        "</script></body>"
    )
    measured = folder / "measured.html"
    measured.write_text(report.read_text().replace("</body>", probe))
    dom, messages, shot = open_in_browser(measured, folder)
    (title,) = re.findall("<title>(.*?)</title>", dom)
    sizes = [[int(part) for part in size.split("x")] for size in title.split()]
    assert len(sizes) == 1
    assert all(min(size) > 100 for size in sizes)
    assert "CONSOLE" not in messages
    assert shot.startswith(b"\x89PNG")
    broken = folder / "broken.html"
    broken.write_text("<script>nothing.here()</script>")
    assert "CONSOLE" in open_in_browser(broken, folder)[1]  # errors would have been seen


@pytest.mark.skipif(browser() is None, reason="no Chromium here")
def test_the_report_opens_in_a_browser(curves, tmp_path):
    check_in_browser(curves, tmp_path)


@pytest.mark.slow
def test_the_report_opens_in_a_browser_installed_for_it(curves, tmp_path):
    if browser() is None:
        if os.name != "posix" or os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip("Chromium cannot be installed here")
        subprocess.run(["apt-get", "update"], check=False, capture_output=True)
        done = subprocess.run(["apt-get", "install", "-y", "chromium"], capture_output=True)
        if done.returncode:
            pytest.skip("Chromium could not be installed")
    check_in_browser(curves, tmp_path)
