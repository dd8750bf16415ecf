# SPDX-FileCopyrightText: the dbg authors
# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser, headless: as many points as pairs, filter and sort, hostile names, ten thousand rows.

    python tests/compare/report_page_test.py [FOLDER]

With FOLDER, the pages and their pictures (light and dark) stay there to be looked at.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(os.environ["DBG_TEST_BINARY_DIR"]) / "src/cli/dbg"
HOSTILE = "<script>alert(1)</script>"

# What a user would do, with what she then sees; the result is left where --dump-dom shows it.
DRIVER = """
<script>
const seen = {ready: document.body.dataset.ready, points: document.querySelectorAll('#chart circle').length,
              scripts: document.scripts.length - 1, bold: document.querySelectorAll('#table b, #detail b').length};
const texts = () => [...document.querySelectorAll('#table tr.pair')].map(row => [...row.cells].map(cell => cell.textContent));
const filter = document.getElementById('filter');
function type(text) { filter.value = text; filter.dispatchEvent(new Event('input')); }
seen.all = document.getElementById('count').textContent;
type('WANTED');
seen.filtered = document.getElementById('count').textContent;
seen.rows = texts().map(row => row[3]);
type('');
const heads = document.querySelectorAll('#table th button');
heads[5].click(); heads[5].click();
seen.largest = texts()[0][3];
heads[0].click();
seen.first = texts()[0][3];
document.querySelectorAll('#verdicts input')[0].click();
seen.without_same = document.getElementById('count').textContent;
document.querySelectorAll('#verdicts input')[0].click();
document.querySelector('#chart circle[data-pair="' + PICKED + '"]').dispatchEvent(new MouseEvent('click', {bubbles: true}));
seen.detail = document.getElementById('detail').textContent;
seen.canvases = document.querySelectorAll('#detail canvas').length;
seen.ceiling = document.querySelector('#chart circle[data-pair="' + INFINITE + '"]').getAttribute('cy');
seen.picked = document.querySelectorAll('#table tr.picked').length;
document.getElementById('scroll').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowUp'}));
seen.above = document.getElementById('detail').textContent.slice(0, 60);
document.querySelector('#chart circle[data-pair="' + INFINITE + '"]').dispatchEvent(new MouseEvent('click', {bubbles: true}));
seen.infinite = document.getElementById('detail').textContent;
seen.pixel = [...document.querySelector('#detail canvas').getContext('2d').getImageData(3, 2, 1, 1).data].join(' ');
const began = performance.now();
for (const text of ['1', '12', '123', '']) type(text);
heads[3].click(); heads[6].click();
document.getElementById('scroll').scrollTop = 26 * 5000;
document.getElementById('scroll').onscroll();
seen.milliseconds = performance.now() - began;
seen.in_page = texts().length;
document.body.setAttribute('data-seen', JSON.stringify(seen));
</script>
"""

failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print(f"FAILED: {message}")


def browser():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    print("SKIPPED: no chromium to open the page in")
    sys.exit(77)


def run_browser(arguments, home):
    command = [browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--allow-file-access-from-files", f"--user-data-dir={home}", "--virtual-time-budget=60000", *arguments]
    return subprocess.run(command, capture_output=True, timeout=100, text=True, check=True).stdout


def look(page, wanted, picked, infinite, folder):
    driven = folder / f"driven-{page.name}"
    driver = DRIVER.replace("WANTED", wanted).replace("PICKED", str(picked)).replace("INFINITE", str(infinite))
    driven.write_text(page.read_text().replace("</body>", driver + "</body>"))
    dom = run_browser(["--dump-dom", driven.as_uri()], folder / "profile")
    found = re.search(r'data-seen="([^"]*)"', dom)
    if not found:
        raise AssertionError("the page's script did not run to its end:\n" + dom[-2000:])
    text = found[1]
    for entity, char in (("&quot;", '"'), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")):
        text = text.replace(entity, char)
    return json.loads(text)


def picture(page, folder, name, size="1400,1500"):
    for theme, scheme in (("light", 1), ("dark", 0)):
        run_browser([f"--screenshot={folder / (name + '-' + theme + '.png')}", f"--window-size={size}",
                     f"--blink-settings=preferredColorScheme={scheme}", page.as_uri()], folder / "profile")


def record(folder, index, name, value, layer):
    path = folder / f"step=0___rank=0___dump_index={index}___name={name}___layer_id={layer}.pt"
    torch.save({"value": value, "meta": {"name": name, "step": 0, "rank": 0, "dump_index": index}}, path)


def write_runs(folder, pairs):
    """Every pair differs a little more; one name is markup, one tensor has a fault, the one after it an infinity."""
    for side in ("baseline", "target"):
        (folder / side).mkdir()
    generator = torch.Generator().manual_seed(5)
    fault = pairs // 2
    for at in range(pairs):
        name = HOSTILE.replace("/", "%2F") if at == 3 else f"tensor{at}"
        value = torch.randn(8, 24, generator=generator)
        other = value.clone()
        if at >= 3:
            other *= 1 + 1e-7 * (at % 7 + 1)
        if at == fault:
            other[5, 7] += 3
        if at == fault + 1:
            other[2, 3] = float("inf")
        record(folder / "baseline", at + 1, name, value, at)
        record(folder / "target", at + 1, name, other, at)
    return fault


def check(folder, pairs, picks_hostile):
    fault = write_runs(folder, pairs)
    page = folder / "page.html"
    status = subprocess.run([PROGRAM, "compare", folder / "baseline", folder / "target", "--html", page, "--quiet"]).returncode
    expect(status == 1, f"compare ended with {status}")
    wanted = "alert(1)" if picks_hostile else f"tensor{fault} "
    seen = look(page, wanted, fault, fault + 1, folder)
    print({key: value for key, value in seen.items() if key not in ("detail", "infinite")})
    expect(seen["ready"] == "yes" and seen["points"] == pairs, f"{seen['points']} points for {pairs} pairs")
    expect(seen["scripts"] == 2, f"{seen['scripts']} scripts in the page: a name became one")
    expect(seen["all"] == f"{pairs} of {pairs}", f"count {seen['all']}")
    expect(seen["filtered"] == f"1 of {pairs}", f"filtered {seen['filtered']}")
    name = f"{HOSTILE} layer_id=3" if picks_hostile else f"tensor{fault} layer_id={fault}"
    expect(seen["rows"] == [name], f"rows {seen['rows']}")
    expect(seen["largest"] == f"tensor{fault + 1} layer_id={fault + 1}", f"largest rel_diff at {seen['largest']}")
    expect(float(seen["ceiling"]) == 14, f"the infinite rel_diff is not on the chart's ceiling, but at {seen['ceiling']}")
    expect("unequal infinities: 1" in seen["infinite"] and "the most at [2, 3]" in seen["infinite"] and
           "against inf" in seen["infinite"], f"the infinity's detail: {seen['infinite']}")
    expect(seen["pixel"] == "255 0 255 255", f"the infinity's cell in the heat map is {seen['pixel']}")
    expect(seen["first"] == "tensor0 layer_id=0", f"first by number {seen['first']}")
    expect(seen["without_same"] == f"{pairs - 3} of {pairs}", f"without the same bits {seen['without_same']}")
    expect("the most at [5, 7]" in seen["detail"] and seen["canvases"] == 1, "the detail shows no place or no heat map")
    expect(seen["picked"] == 1 and f"tensor{fault - 1} " in seen["above"], f"the key up went to {seen['above']}")
    expect(seen["in_page"] < 100, f"{seen['in_page']} rows in the page at once")
    expect(seen["milliseconds"] < 2000, f"four filters, two sorts and a scroll took {seen['milliseconds']} ms")
    return page


def main():
    browser()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else name)
        for pairs, picks_hostile in ((40, True), (10000, False)):
            inner = folder / str(pairs)
            inner.mkdir(parents=True)
            page = check(inner, pairs, picks_hostile)
            if len(sys.argv) > 1:
                picture(page, inner, "page")
    print(f"{len(failures)} failures")
    return 1 if failures else 0


try:
    import torch
except ImportError as error:
    print(f"SKIPPED: {error}")
    sys.exit(77)

if __name__ == "__main__":
    sys.exit(main())
