//! Checks the documentation against the code: links lead somewhere, commands run, and the reference names all that exists.

mod common;
#[path = "common/described.rs"]
mod described;
#[path = "common/markdown.rs"]
mod markdown;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use xsched_policy::{Param, registry};
use xsched_proto::class::{Class, Contention, hardware_timeslice_us};
use xsched_proto::hint::Hint;
use xsched_proto::statistics::{GroupInfo, QueueInfo, YieldRule, Yielding};
use xsched_proto::variables;
use xsched_proto::wire::Platform;

use common::{Place, said};
use markdown::{book, page, pages, root};

/// Time limit of all blocks tagged `run` together.
const PATIENCE: Duration = Duration::from_secs(60);

const ALL_CLASSES: [Class; 5] = [Class::System, Class::Realtime, Class::High, Class::Normal, Class::Low];

/// Asserts that the names in the pages are exactly the existing ones.
#[track_caller]
fn same(what: &str, named: impl IntoIterator<Item = String>, there: impl IntoIterator<Item = String>) {
    let (named, there): (BTreeSet<_>, BTreeSet<_>) = (named.into_iter().collect(), there.into_iter().collect());
    let missing: Vec<_> = there.difference(&named).collect();
    let surplus: Vec<_> = named.difference(&there).collect();
    assert!(
        missing.is_empty() && surplus.is_empty(),
        "{what}: the page lacks {missing:?} and has {surplus:?} too many"
    );
}

#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let mut broken = Vec::new();
    for page in &pages {
        for (line, link) in page.links() {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.path.clone(),
                file => page.path.parent().unwrap().join(file),
            };
            let Ok(target) = target.canonicalize() else {
                broken.push(format!("{}:{line}: {link}: there is no such file", page.name()));
                continue;
            };
            if !anchor.is_empty() {
                let there = pages.iter().find(|p| p.path == target);
                if !there.is_some_and(|p| p.anchors().iter().any(|a| a == anchor)) {
                    broken.push(format!("{}:{line}: {link}: there is no such heading", page.name()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Pages that code and scripts cite exist, with the heading after `#`.
#[test]
fn pages_that_the_code_cites_exist() {
    let (pages, mut wrong, mut cited) = (pages(), Vec::new(), 0);
    for (file, text) in sources() {
        for (at, _) in text.match_indices("docs/") {
            let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-#".contains(c);
            let name = text[at..].split(|c| !is_part(c)).next().unwrap_or_default().trim_end_matches('.');
            let (page, anchor) = name.split_once('#').unwrap_or((name, ""));
            if !page.ends_with(".md") || text[..at].ends_with(|c: char| c.is_alphanumeric() || "./_-\"".contains(c)) {
                continue;
            }
            cited += 1;
            let there = pages.iter().find(|there| there.name() == page);
            if !there.is_some_and(|page| anchor.is_empty() || page.anchors().iter().any(|known| known == anchor)) {
                wrong.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cited > 5, "{cited} pages are cited");
}

/// Raw results name files of the repository by their paths in it, not by the path of a checkout.
#[test]
fn raw_results_say_nothing_of_where_a_checkout_lay() {
    let mut left = vec![root().join("docs/benchmarks")];
    let mut files = 0;
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().flatten().map(|entry| entry.path()));
            continue;
        }
        // Pictures and compressed files are no text, and name no file.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        files += 1;
        for folder in ["/testing/", "/benches/", "/crates/"] {
            for (at, _) in text.match_indices(folder) {
                let begins = |c: char| !(c.is_alphanumeric() || "/._-+".contains(c));
                let word = text[..at].rsplit(begins).next().unwrap_or_default();
                assert!(!word.starts_with('/'), "{}: {word}{folder}", path.display());
            }
        }
    }
    assert!(files > 20, "{files}");
}

#[test]
fn the_summary_lists_every_page_once() {
    let summary = page("docs/SUMMARY.md");
    let docs = root().join("docs");
    let listed: Vec<_> = summary.links().into_iter().map(|(_, link)| docs.join(link).display().to_string()).collect();
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(listed.len(), once.len(), "a page is listed twice");
    let there = book().into_iter().filter(|p| p.path != summary.path).map(|p| p.path.display().to_string());
    same("docs/SUMMARY.md", listed, there);
}

#[test]
fn the_readme_fits_on_a_screen_and_a_half() {
    let size = page("README.md").text.len();
    assert!(size < 8_000, "README.md has {size} bytes");
}

/// Checks the tags of blocks: without one a block would neither be run nor parsed.
#[test]
fn every_block_of_commands_says_where_it_can_run() {
    for page in pages() {
        for block in page.blocks() {
            let (kind, tags) =
                block.tags.split_first().unwrap_or_else(|| panic!("{}: tag it, as sh or text", block.at));
            let shell = ["sh", "bash", "console", "shell"].contains(&kind.as_str());
            let known = matches!(tags, [tag] if ["run", "tour", "gpu", "root", "build"].contains(&tag.as_str()));
            assert!(!shell || known, "{}: tag it run, tour, gpu, root or build", block.at);
        }
    }
}

#[test]
fn blocks_tagged_run_do_run() {
    let place = Place::new();
    let bin = Path::new(env!("CARGO_BIN_EXE_xsched")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let begin = Instant::now();
    let mut run = 0;
    for block in pages().iter().flat_map(markdown::Page::blocks) {
        if !block.tags.iter().any(|t| t == "run") {
            continue;
        }
        let mut command = place.command(Path::new("/bin/sh"), &["-euc", &block.text]);
        command.current_dir(place.path()).env("PATH", &path);
        let said = said(command);
        assert_eq!(said.code, Some(0), "{}: {}\n{said:?}", block.at, block.text);
        run += 1;
    }
    assert!(run > 3, "only {run} blocks are tagged run");
    assert!(begin.elapsed() < PATIENCE, "{:?}: tag what takes long gpu or build", begin.elapsed());
}

/// Checks each file with a daemon: with a good one it ends after a second without programs, with a bad one at once.
#[test]
fn every_configuration_in_the_pages_is_accepted() {
    let place = Place::new();
    let blocks: Vec<_> = pages().iter().flat_map(markdown::Page::blocks).collect();
    let blocks = blocks.into_iter().filter(|b| b.tags.first().is_some_and(|t| t == "toml"));
    let running: Vec<_> = blocks
        .enumerate()
        .map(|(number, block)| {
            let file = place.join(&format!("{number}.toml"));
            std::fs::write(&file, &block.text).unwrap();
            let socket = place.join(&format!("{number}.sock"));
            let mut command = place.xsched(&["daemon", "--idle-exit", "1", "--config"]);
            command.arg(file).arg("--socket").arg(socket).stderr(std::process::Stdio::piped());
            (block, command.spawn().unwrap())
        })
        .collect();
    assert!(running.len() > 3);
    for (block, daemon) in running {
        let output = daemon.wait_with_output().unwrap();
        assert!(output.status.success(), "{}: {}", block.at, String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_reference_has_every_key_of_the_configuration_and_no_other() {
    let mut tables = BTreeSet::new();
    for (heading, rows) in page("docs/reference/configuration.md").rows() {
        let table = match heading.as_str() {
            "" => continue,
            "Top level" => "",
            other => other.trim_matches(['[', ']']),
        };
        let there = xsched_daemon::config_keys().filter(|(known, _)| *known == table).map(|(_, key)| key.to_owned());
        same(&heading, rows, there);
        tables.insert(table.to_owned());
    }
    same("tables", tables, xsched_daemon::config_keys().map(|(table, _)| table.to_owned()));
}

/// Headings of tables in the pages, in code within a sentence, name tables that exist.
#[test]
fn tables_of_the_configuration_are_called_by_their_names_in_the_pages() {
    let known: BTreeSet<&str> = xsched_daemon::config_keys().filter_map(|(table, _)| table.split('.').next()).collect();
    // Tables of other programs' configurations.
    let foreign = ["plugins", "crio", "containers", "injector", "startup_taint"];
    let mut named = 0;
    // The changelog names what is no more.
    for page in pages().into_iter().filter(|page| !page.path.ends_with("CHANGELOG.md")) {
        for (number, line) in page.text.lines().enumerate() {
            for code in line.split('`').skip(1).step_by(2) {
                let Some(rest) = code.strip_prefix("[[").or(code.strip_prefix('[')) else { continue };
                let name: String = rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect();
                let is_heading = !name.is_empty() && rest[name.len()..].starts_with([']', '.']);
                if !is_heading || foreign.contains(&name.as_str()) {
                    continue;
                }
                assert!(known.contains(name.as_str()), "{}:{}: `{code}`", page.path.display(), number + 1);
                named += 1;
            }
        }
    }
    assert!(named > 20, "only {named} tables are named");
}

/// Pages from which a newcomer starts a release build name its time: without it a build looks like one that hangs.
#[test]
fn pages_with_a_release_build_say_how_long_it_takes() {
    let builds = ["build --release", "run --release", "xtask package ", "xtask install ", "xtask wheel "];
    let (mut silent, mut asked) = (Vec::new(), 0);
    for page in pages() {
        if page.name() != "README.md" && !page.name().starts_with("docs/guide/") {
            continue;
        }
        let builds = |text: &str| builds.iter().any(|build| text.contains(&format!("cargo {build}")));
        let Some(block) = page.blocks().into_iter().find(|block| builds(&block.text)) else { continue };
        asked += 1;
        let words: Vec<&str> = page.text.split_whitespace().collect();
        if !words.join(" ").contains("minutes on two processors") {
            silent.push(block.at);
        }
    }
    assert!(silent.is_empty(), "no time is named for the builds of {silent:?}");
    assert!(asked >= 4, "only {asked} pages have a build");
}

/// Pages that a newcomer begins with lead to the two programs that they start.
#[test]
fn the_programs_that_the_first_pages_start_are_linked() {
    let tour = page("examples/tour/README.md");
    for program in ["serve.py", "train.py"] {
        assert!(tour.text.contains(program) && tour.path.with_file_name(program).is_file(), "{program}");
    }
    for first in ["README.md", "dist/start.md", "docs/guide/tasks.md"].map(page) {
        assert!(first.text.contains("serve.py") && first.text.contains("train.py"), "{}", first.name());
        let leads_there = first.links().iter().any(|(_, link)| link.ends_with("examples/tour/README.md"));
        assert!(leads_there, "{} has no link to the programs that it starts", first.name());
    }
}

/// Tables of the policies' page, from the registry.
fn policies() -> String {
    let code = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let mut text = String::from("| policy | effect | for | hints |\n| --- | --- | --- | --- |\n");
    for entry in registry::listed() {
        let names = std::iter::once(entry.name).chain(entry.aliases.iter().copied()).collect::<Vec<_>>();
        let hints = entry.hints.iter().map(|hint| hint.name()).collect::<Vec<_>>();
        let about = entry.about.replace('|', "\\|");
        text += &format!("| {} | {about} | {} | {} |\n", code(&names), entry.good_for, code(&hints));
    }
    text += "\n## Parameters\n\n| parameter | values | default | meaning |\n| --- | --- | --- | --- |\n";
    for entry in registry::listed() {
        for param in entry.params {
            let Param { name, about, accepts } = param;
            let values = accepts.accepted();
            text += &format!("| `{} {name}` | {values} | {} | {about} |\n", entry.name, accepts.default_text());
        }
    }
    text += "\n## Hints\n\n| hint | values | variable |\n| --- | --- | --- |\n";
    for hint in Hint::ALL {
        text += &format!("| `{}` | {} | `{}` |\n", hint.name(), hint.accepted(), hint.variable());
    }
    text
}

/// Compares the page with the registry. `BLESS=1 cargo test -p xsched-cli --test documents` writes the page.
#[test]
fn the_reference_of_policies_is_the_registry() {
    let path = root().join("docs/reference/policies.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let at = text.find("| policy |").expect("the table of policies");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{}{}", &text[..at], policies())).unwrap();
    } else {
        assert_eq!(text[at..], policies(), "BLESS=1 cargo test -p xsched-cli --test documents writes it anew");
    }
}

/// Names of variables in quotation marks, in the sources of the programs that users run, without tests. The list of all variables does not
/// count as a use.
fn variables_in_code() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let crates = ["agent", "bench", "cli", "command", "core", "daemon", "policy", "proto", "shim", "sim", "simdev"];
    let mut folders: Vec<_> = crates.iter().map(|name| root().join(format!("crates/xsched-{name}/src"))).collect();
    folders.extend(["python", "benches"].map(|name| root().join(name)));
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs" || e == "py") && !path.ends_with("variables.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]").next().unwrap();
                for prefix in ["\"XSCHED_", "\"SIMDEV_"] {
                    found.extend(text.match_indices(prefix).filter_map(|(at, _)| {
                        let name =
                            text[at + 1..].split(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
                        let name = name.into_iter().next()?;
                        // Only a whole word counts: "XSCHED_" alone is the prefix by which variables are recognised.
                        let whole = text[at + 1 + name.len()..].starts_with('"') && !name.ends_with('_');
                        whole.then(|| name.to_owned())
                    }));
                }
            }
        }
    }
    found
}

#[test]
fn the_reference_has_every_variable_and_no_other() {
    let rows = page("docs/reference/environment.md").rows();
    let named: BTreeSet<String> = rows
        .into_iter()
        .flat_map(|(_, names)| names)
        .filter(|name| name.starts_with("XSCHED_") || name.starts_with("SIMDEV_"))
        .collect();
    let (ours, others): (BTreeSet<_>, BTreeSet<_>) =
        variables_in_code().into_iter().partition(|name| name.starts_with("XSCHED_"));
    same("variables", named.clone(), variables::all().map(str::to_owned).chain(others));
    same("variables in the code", ours, variables::all().map(str::to_owned));
    // A variable named on any page is in the list.
    for page in pages() {
        for word in page.text.split(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_') {
            let is_one = word.starts_with("XSCHED_") && word.len() > 7 && !word.ends_with('_');
            // Names of the C headers, which are no variables.
            let other = ["XSCHED_SCHEDULER_VERSION", "XSCHED_THROTTLE_HW_THERMAL", "XSCHED_PRIORITY_NOT_EXECUTED"]
                .contains(&word);
            assert!(!is_one || other || named.contains(word), "{}: there is no variable {word}", page.name());
        }
    }
}

/// Names of a structure's public fields, from its source.
fn fields(source: &str, structure: &str) -> BTreeSet<String> {
    let (_, rest) = source.split_once(&format!("pub struct {structure} {{")).unwrap_or_else(|| panic!("{structure}"));
    let (body, _) = rest.split_once("\n}").unwrap();
    let field = |line: &str| Some(line.trim().strip_prefix("pub ")?.split_once(':')?.0.to_owned());
    body.lines().filter_map(field).collect()
}

#[test]
fn the_reference_has_every_field_of_ps_and_no_other() {
    let source =
        ["info", "device", "wire", "account"].map(|name| root().join(format!("crates/xsched-proto/src/{name}.rs")));
    let source = source.map(|file| std::fs::read_to_string(file).unwrap()).concat();
    let rows = page("docs/reference/ps-json.md").rows();
    for (heading, structure) in [
        ("daemon", "DaemonInfo"),
        ("devices[]", "DeviceInfo"),
        ("devices[].latest", "DeviceState"),
        ("devices[].processes[]", "DeviceProcess"),
        ("programs[]", "ProgramInfo"),
        ("programs[].memory[]", "MemoryInfo"),
        ("programs[].memory[].held", "MemoryUse"),
        ("refused[]", "RefusedProgram"),
    ] {
        let (_, named) = rows.iter().find(|(h, _)| h == heading).unwrap_or_else(|| panic!("{heading}"));
        // Names at the beginning of a row are fields; values of a field stand further to the right.
        same(heading, named.clone(), fields(&source, structure));
    }
    let place = Place::new();
    let none = said(place.xsched(&["run", "--", "true"]));
    assert_eq!(none.code, Some(0), "{none:?}");
    let answer: serde_json::Value = serde_json::from_str(&said(place.xsched(&["ps", "--json"])).out).unwrap();
    let top: BTreeSet<String> = answer.as_object().unwrap().keys().cloned().collect();
    same("the answer", rows[0].1.clone(), top);
}

/// Writes a page anew with `BLESS=1`, else compares it.
fn derive(path: &str, anew: impl Fn(&str) -> String) {
    let file = root().join(path);
    let text = std::fs::read_to_string(&file).unwrap();
    let anew = anew(&text);
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&file, anew).unwrap();
    } else {
        assert!(text == anew, "{path}: BLESS=1 cargo test -p xsched-cli --test documents writes it anew");
    }
}

/// Statistics of a group are declared in `xsched_proto::statistics`, and nowhere else.
#[test]
fn the_reference_and_the_schema_of_groups_are_their_declaration() {
    derive("docs/reference/ps-json.md", |page| {
        let with = |page: String, (heading, shape)| described::with_table(&page, heading, &described::table(shape));
        described::tables().into_iter().fold(page.to_owned(), with)
    });
    derive("docs/reference/ps.schema.json", described::with_groups);
}

/// Likewise the metrics: the table is the rest of the page.
#[test]
fn the_reference_of_metrics_is_what_the_daemon_tells() {
    derive("docs/reference/metrics.md", |page| {
        let head = page.split("| metric |").next().expect("a head");
        let row = |metric: &xsched_daemon::Metric| {
            format!("| `{}` | {} | {} |\n", metric.name, metric.kind, described::continued(&metric.help))
        };
        let rows: String = xsched_daemon::all_metrics().iter().map(row).collect();
        format!("{head}| metric | kind | meaning |\n| --- | --- | --- |\n{rows}")
    });
}

/// Printed output has the fields of the schema, and its words.
#[test]
fn a_group_is_printed_as_its_schema_says() {
    let schema: serde_json::Value = {
        let text = std::fs::read_to_string(root().join("docs/reference/ps.schema.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let of_groups = &schema["properties"]["programs"]["items"]["properties"]["groups"]["items"];
    let validator = jsonschema::validator_for(of_groups).unwrap();
    for platform in [Platform::Cuda, Platform::Hip, Platform::Hsa, Platform::Opencl, Platform::Sim] {
        for rule in [None, Some(YieldRule::Yields), Some(YieldRule::Probe), Some(YieldRule::Closes)] {
            let yielding = Some(Yielding { rule, flips: 1, opened: 2, opened_us: 3, passed: 4, held_us: 5 });
            let queues = vec![QueueInfo { id: "q1".into(), launches: 1 }];
            let group = GroupInfo { yielding, queues, alone_us: Some(1.5), ..GroupInfo::new(1, "sim:0", platform) };
            let printed = serde_json::to_value(group).unwrap();
            let faults: Vec<_> =
                validator.iter_errors(&printed).map(|e| format!("{}: {e}", e.instance_path())).collect();
            assert!(faults.is_empty(), "{faults:?}");
        }
    }
}

/// `docs/guide/checking.md` explains the columns that `ps` prints.
#[test]
fn the_columns_of_ps_in_the_pages_are_those_it_prints() {
    let source = ["mod", "past", "table"].map(|name| root().join(format!("crates/xsched-cli/src/cmd/ps/{name}.rs")));
    let source = source.map(|file| std::fs::read_to_string(file).unwrap()).concat();
    for page in pages() {
        for block in page.blocks() {
            // `top` has columns of its own.
            if block.text.starts_with("xsched top ") {
                continue;
            }
            // Names of two words.
            let heads = block.text.lines().filter(|l| l.trim_start().starts_with("PID "));
            let names = heads.flat_map(|l| {
                let l = l.replace("GPU TIME", "GPU_TIME").replace("LAST SEEN", "LAST_SEEN");
                l.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
            });
            for column in names.map(|name| name.replace('_', " ")) {
                assert!(
                    column == "PROGRAM" || source.contains(&format!("\"{column}\"")),
                    "{}: no column {column}",
                    block.at
                );
            }
        }
    }
}

/// Checks that the published schema has the fields of the reference, with their types and descriptions. Returns their number.
fn schema_is_page(command: &str, page_name: &str) -> usize {
    let place = Place::new();
    let schema: serde_json::Value = serde_json::from_str(&said(place.xsched(&[command, "--schema"])).out).unwrap();
    assert!(jsonschema::meta::is_valid(&schema));
    let text = page(page_name).text;
    let mut at = String::new();
    let mut checked = 0;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## `") {
            at = heading.trim_end_matches('`').to_owned();
        }
        let cells: Vec<&str> = line.split(" | ").collect();
        let [name, kind, meaning] = cells[..] else { continue };
        let Some(name) = name.strip_prefix("| `").and_then(|name| name.strip_suffix('`')) else { continue };
        // In the schema, `programs[].groups[]` is properties, items, properties, items.
        let mut within = &schema;
        for part in at.split('.').filter(|part| !part.is_empty()) {
            within = &within["properties"][part.trim_end_matches("[]")];
            within = if part.ends_with("[]") { &within["items"] } else { within };
        }
        if within.get("$ref").is_some() {
            continue;
        }
        let field = &within["properties"][name];
        assert!(within["required"].as_array().unwrap().contains(&name.into()), "{at}: {name} is required");
        let types: Vec<&str> = match &field["type"] {
            serde_json::Value::String(one) => vec![one],
            several => several.as_array().unwrap().iter().filter_map(|t| t.as_str()).collect(),
        };
        let expected = match kind.trim_end_matches(" or null") {
            "text" => vec!["string"],
            "number" => vec!["integer", "number"],
            "boolean" => vec!["boolean"],
            "list" => vec!["array"],
            "object" => vec!["object"],
            other => panic!("{at}: {name}: {other}"),
        };
        assert!(expected.contains(&types[0]), "{at}: {name}: {types:?}");
        assert_eq!(types.contains(&"null"), kind.ends_with(" or null"), "{at}: {name}: {types:?}");
        if let Some(description) = field["description"].as_str() {
            let meaning = described::bare(&meaning.trim_end_matches(" |").replace("\\|", "|"));
            assert_eq!(description, meaning, "{at}: {name}");
        }
        checked += 1;
    }
    checked
}

#[test]
fn the_schemas_say_what_the_reference_says() {
    assert!(schema_is_page("ps", "docs/reference/ps-json.md") > 80);
    assert!(schema_is_page("doctor", "docs/reference/doctor.md") > 30);
    assert!(schema_is_page("trace", "docs/reference/trace-json.md") > 30);
    assert_eq!(schema_is_page("usage", "docs/reference/usage-json.md"), 12);
    assert_eq!(schema_is_page("policy", "docs/reference/policy-json.md"), 13);
    assert_eq!(schema_is_page("compare", "docs/reference/compare-json.md"), 42);
    assert_eq!(schema_is_page("simulate", "docs/reference/simulate-json.md"), 37);
}

#[test]
fn what_doctor_and_policy_print_obeys_their_schemas() {
    let place = Place::new();
    let schema: serde_json::Value = serde_json::from_str(&said(place.xsched(&["doctor", "--schema"])).out).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let own = std::process::id().to_string();
    let policies: serde_json::Value = serde_json::from_str(&said(place.xsched(&["policy", "--json"])).out).unwrap();
    let of_policies: serde_json::Value =
        serde_json::from_str(&said(place.xsched(&["policy", "--schema"])).out).unwrap();
    assert!(jsonschema::is_valid(&of_policies, &policies) && policies["policies"].as_array().unwrap().len() > 10);
    for words in [&["doctor", "--json"][..], &["doctor", "--json", &own]] {
        let answer: serde_json::Value = serde_json::from_str(&said(place.xsched(words)).out).unwrap();
        let faults: Vec<_> = validator.iter_errors(&answer).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(faults.is_empty(), "{words:?}: {faults:?}");
        // The schema has every field of the answer.
        for (part, of) in [(&answer, &schema), (&answer["checks"][0], &schema["properties"]["checks"]["items"])] {
            let names = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
            assert_eq!(names(part), names(&of["properties"]));
        }
    }
}

/// Names and numbers of the constants in a C header.
fn constants(header: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join(header)).unwrap();
    let value = |line: &str| {
        let line = line.trim();
        let (name, value) = match line.strip_prefix("#define ") {
            Some(macro_text) => macro_text.split_once(" (")?,
            None => line.split_once(" = ").filter(|(name, _)| name.starts_with('k'))?,
        };
        let number: String = value.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
        Some(format!("{name} = {number}"))
    };
    text.lines().filter_map(value).collect()
}

#[test]
fn the_reference_has_every_constant_and_result_of_the_c_api() {
    let page = page("docs/reference/c-api.md");
    let mut named = BTreeSet::new();
    let lines = page.text.lines().skip_while(|line| *line != "## Results");
    for line in lines.take_while(|line| *line != "## Suspend and resume") {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [names, numbers, _] = cells[..] else { continue };
        let names: Vec<&str> = names.split('`').skip(1).step_by(2).collect();
        let is_constant = |name: &&str| name.starts_with('k') || name.starts_with("XSCHED_");
        if names.first().is_some_and(is_constant) {
            let numbers: Vec<&str> = numbers.split(", ").collect();
            assert_eq!(names.len(), numbers.len(), "{line}");
            named.extend(names.iter().zip(numbers).map(|(name, number)| format!("{name} = {number}")));
        }
    }
    let there = constants("include/xsched/types.h");
    assert!(there.len() > 60, "{there:?}");
    same("constants", named, there);
}

/// Words in backquotes, outside blocks.
fn quoted(page: &markdown::Page) -> Vec<(usize, String)> {
    let words = |(line, text): (usize, &str)| -> Vec<(usize, String)> {
        text.split('`').skip(1).step_by(2).map(|word| (line, word.to_owned())).collect()
    };
    page.prose().into_iter().flat_map(words).collect()
}

/// Sources of the repository, by their paths from the root.
fn sources() -> Vec<(String, String)> {
    let (mut found, mut left) =
        (Vec::new(), ["crates", "include", "xtask", "testing", "benches"].map(|f| root().join(f)).to_vec());
    while let Some(folder) = left.pop() {
        for path in std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                left.push(path);
            } else if ["rs", "h", "c", "py", "txt"].iter().any(|e| path.extension().is_some_and(|x| x == *e)) {
                let name = path.strip_prefix(root()).unwrap().display().to_string();
                found.push((name, std::fs::read_to_string(&path).unwrap_or_default()));
            }
        }
    }
    found
}

/// Names of code and files in these pages exist, so that a page does not keep a name that was changed.
#[test]
fn the_internals_name_what_the_code_has() {
    let sources = sources();
    let mut known = BTreeSet::new();
    for (_, text) in &sources {
        known.extend(text.split(|c: char| !(c.is_alphanumeric() || c == '_')));
    }
    let (mut wrong, mut names) = (Vec::new(), 0);
    // Names in vendors' interfaces that no source here has.
    let foreign = ["rocblas_status_invalid_handle", "libamd_comgr"];
    for page in book().into_iter().filter(|page| page.name().starts_with("docs/internals/")) {
        for (line, word) in quoted(&page) {
            // `NAME` stands for a name, and `_v2` for an end of one.
            if word.contains("NAME") || word.starts_with('_') || foreign.contains(&word.as_str()) {
                continue;
            }
            let is = |more: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
            let there = if word.ends_with(".rs") && is("_/.-") {
                // Pages say `core/admit.rs` for `crates/xsched-core/src/admit.rs`.
                let (folder, file) = word.split_once('/').unwrap_or(("", &word));
                let long = format!("crates/xsched-{folder}/src/{file}");
                sources.iter().any(|(path, _)| *path == long || path == &word || path.ends_with(&format!("/{word}")))
            } else if is("_:") && (word.contains('_') || word.contains("::")) {
                word.rsplit("::").next().is_some_and(|last| known.contains(last))
            } else {
                continue;
            };
            names += 1;
            if !there {
                wrong.push(format!("{}:{line}: `{word}` is not in the code", page.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(names > 100, "only {names} names are looked for");
}

/// Checks the priorities and time slices of the classes.
#[test]
fn the_scales_are_those_of_the_code() {
    let page = page("docs/reference/scales.md");
    let mut seen = Vec::new();
    for (_, line) in page.prose() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let Some(class) = ALL_CLASSES.iter().find(|c| cells[0].starts_with(&format!("`{}`", c.name()))) else {
            continue;
        };
        let (least, most) = class.range();
        let range = if least == most { most.to_string() } else { format!("{least}..{most}") };
        assert_eq!(cells[1..3], [class.nominal().to_string(), range], "{class}");
        let alone = hardware_timeslice_us(*class, Contention::None);
        assert!(cells[4].starts_with(&format!("{alone} µs")), "{class}: {alone}, not {}", cells[4]);
        for short in [false, true] {
            let beside = hardware_timeslice_us(*class, Contention::BestEffort { short });
            assert!(beside == alone || cells[4].contains(&beside.to_string()), "{class}: {beside}, not {}", cells[4]);
        }
        seen.push(*class);
    }
    assert_eq!(seen.len(), ALL_CLASSES.len(), "{seen:?}");
}

/// Lines that a script of the recipes prints, run with these variables and with `programs` before all others.
fn script_of_a_recipe(script: &str, programs: &Path, variables: &[(&str, &str)]) -> Vec<String> {
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = std::process::Command::new("/bin/sh");
    command.arg(root().join("examples/recipes/slurm").join(script));
    command.env_remove("LD_PRELOAD").env("PATH", path).envs(variables.iter().copied());
    let said = said(command);
    assert_eq!(said.code, Some(0), "{script}: {said:?}");
    said.out.lines().map(str::to_owned).collect()
}

/// Checks the scripts for SLURM: the task's environment by its partition, an end without a fault where the daemon or the programs are
/// not there, and the line of this job alone in the log.
#[test]
fn the_scripts_for_slurm_say_class_and_job_and_never_fail() {
    let place = Place::new();
    let programs = place.join("programs");
    std::fs::create_dir(&programs).unwrap();
    let stand_in = |name: &str, script: &str| {
        let file = programs.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    for (partition, class) in [("interactive", Class::High), ("batch", Class::Low), ("other", Class::Low)] {
        let variables = [("SLURM_JOB_PARTITION", partition), ("SLURM_JOB_ID", "7"), ("XSCHED_PRIORITY", "system")];
        let lines = script_of_a_recipe("task-prolog", &programs, &variables);
        let class = format!("export XSCHED_PRIORITY={class}");
        assert_eq!(lines, ["export LD_PRELOAD=/usr/lib/xsched/libxsched.so", &class, "export XSCHED_JOB=slurm-7"]);
        for line in &lines[1..] {
            let name = line.trim_start_matches("export ").split('=').next().unwrap();
            assert!(variables::all().any(|known| known == name), "{line}");
        }
    }
    stand_in("xsched", "exit 3");
    stand_in("systemctl", &format!("echo \"$@\" >> {}; exit 1", place.join("started").display()));
    stand_in("logger", &format!("cat >> {}", place.join("log").display()));
    script_of_a_recipe("prolog", &programs, &[]);
    assert_eq!(std::fs::read_to_string(place.join("started")).unwrap(), "start xsched\n");
    script_of_a_recipe("epilog", &programs, &[("SLURM_JOB_ID", "7")]);
    stand_in("xsched", "echo slurm-7,1.5; echo slurm-77,2.5; echo other,3.5");
    script_of_a_recipe("epilog", &programs, &[("SLURM_JOB_ID", "7")]);
    assert_eq!(std::fs::read_to_string(place.join("log")).unwrap(), "slurm-7,1.5\n");
}

/// Compares the list of the recipes' programs with their folder, and the kernel that the page shows with its file.
#[test]
fn the_recipes_are_those_of_their_folder() {
    let folder = root().join("examples/recipes");
    let named = page("examples/recipes/README.md").rows().into_iter().flat_map(|(_, names)| names);
    let there = std::fs::read_dir(&folder).unwrap().flatten().flat_map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        match (entry.path().is_dir(), name.as_str()) {
            (true, "jupyter") => Some("jupyter/kernel.json".to_owned()),
            (true, "__pycache__") | (false, "README.md") => None,
            (true, folder) => Some(format!("{folder}/")),
            (false, file) => Some(file.to_owned()),
        }
    });
    same("examples/recipes", named, there);
    let text = std::fs::read_to_string(folder.join("jupyter/kernel.json")).unwrap();
    let shown = text.lines().find(|line| line.contains("argv")).unwrap().trim().trim_end_matches(',');
    assert!(page("docs/guide/recipes.md").text.contains(shown), "{shown}");
}
