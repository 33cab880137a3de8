//! Page of `xsched compare --html`, opened in a real browser.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::Place;
use serde_json::{Value, json};

/// Report as `compare --json` writes it, as far as pictures need it.
fn report(high: &str) -> Value {
    let played = |scale: f64, work: f64| {
        let latencies: Vec<f64> = (1..=200).map(|n| f64::from(n) * scale / 20.0).collect();
        json!({ "seconds": 10.0, "latencies_ms": latencies, "work": work })
    };
    let round = |noise: f64| {
        json!({
            "alone": played(noise, 0.0), "native": played(3.0 * noise, 80.0), "xsched": played(1.1 * noise, 70.0),
            "low_alone": { "seconds": 10.0, "latencies_ms": [], "work": 100.0 },
        })
    };
    json!({ "high": high, "low": "python3 train.py", "requests": "bursts", "raw": [round(1.0), round(1.3), round(0.9)] })
}

/// Script that replaces the page's text by measures of its layout, as JSON.
const MEASURE: &str = "<script>onload = () => {
  const box = e => e.getBoundingClientRect();
  const pictures = [...document.querySelectorAll('svg')];
  const inside = svg => [...svg.querySelectorAll('text')].filter(t => {
    const a = box(t), b = box(svg);
    return a.width > 0 && a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  }).length;
  const measures = {
    overflows: document.documentElement.scrollWidth > innerWidth,
    pictures: pictures.map(p => [Math.round(box(p).width), Math.round(box(p).height), p.querySelectorAll('text').length, inside(p)]),
    rows: document.querySelectorAll('tr').length,
    answer: document.querySelector('.answer').innerText,
    alert: document.alerted === true,
  };
  document.body.innerText = 'measures:' + JSON.stringify(measures) + ':end';
};</script>";

/// Layout of the page in a window of this width, by a headless browser.
fn layout(browser: &Path, place: &Place, page: &str, width: u32) -> Value {
    let file = place.join("measured.html");
    std::fs::write(&file, page.replace("</body>", &format!("{MEASURE}</body>"))).unwrap();
    let mut command = place.command(browser, &["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    command
        .arg(format!("--window-size={width},1400"))
        .arg(format!("--user-data-dir={}", place.join("profile").display()));
    let out = command.arg(format!("file://{}", file.display())).stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    let measures = text.split_once("measures:").and_then(|(_, rest)| rest.split_once(":end"));
    let Some((measures, _)) = measures else { panic!("the browser measured nothing ({}): {text}", out.status) };
    serde_json::from_str(measures).unwrap()
}

fn browser() -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path).flat_map(|folder| names.map(|name| folder.join(name))).find(|file| file.is_file())
}

fn page_of(place: &Place, high: &str) -> String {
    let (from, page) = (place.join("report.json"), place.join("page.html"));
    std::fs::write(&from, report(high).to_string()).unwrap();
    let args = ["compare", "--from", from.to_str().unwrap(), "--html", page.to_str().unwrap()];
    let done = place.xsched(&args).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn a_page_is_laid_out_on_wide_and_narrow_screens() {
    let place = Place::new();
    let page = page_of(&place, "python3 serve.py --model '<b onclick=\"document.alerted = true\">' && echo done");
    let Some(browser) = browser() else {
        return xsched_testkit::skipped("the page of compare was opened in no browser: chromium is not installed");
    };
    for width in [1280, 700] {
        let layout = layout(&browser, &place, &page, width);
        assert_eq!(layout["overflows"], false, "{width} px: {layout}");
        assert_eq!(layout["rows"], 5, "{layout}");
        assert_eq!(layout["alert"], false, "a command is text: {layout}");
        let answer = layout["answer"].as_str().unwrap();
        assert!(answer.contains("1.10 x") && answer.contains("3.00 x") && answer.contains("Doubt"), "{answer}");
        let pictures = layout["pictures"].as_array().unwrap();
        assert_eq!(pictures.len(), 2, "{layout}");
        for picture in pictures {
            let of = |n: usize| picture[n].as_u64().unwrap();
            assert!(of(0) > u64::from(width.min(960)) / 2 && of(1) > 150, "{width} px: {layout}");
            assert!(of(2) >= 6 && of(3) == of(2), "text beyond a picture's edge, {width} px: {layout}");
        }
    }
}

#[test]
fn a_page_needs_a_report_or_two_commands() {
    let place = Place::new();
    let from = place.join("report.json");
    std::fs::write(&from, report("serve").to_string()).unwrap();
    let run = |args: &[&str]| -> (Option<i32>, String) {
        let done: Command = place.xsched(args);
        let out = { done }.output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    let (code, said) = run(&["compare", "--from", from.to_str().unwrap()]);
    assert!(code == Some(2) && said.contains("--html"), "{said}");
    let missing = place.join("no/such/page.html");
    let (code, said) = run(&["compare", "--from", from.to_str().unwrap(), "--html", missing.to_str().unwrap()]);
    assert!(code == Some(2) && said.lines().count() == 1, "{code:?}: {said}");
}
