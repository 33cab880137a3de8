//! Pages of the reference, which are part of the program: manual pages and schemas are made from them.

/// Rows of the table below a heading, each as its cells, without the head.
pub(crate) fn rows(markdown: &str, heading: &str) -> Vec<Vec<String>> {
    let below = markdown.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading).skip(1);
    let section = below.take_while(|line| !line.starts_with('#'));
    section.filter(|line| line.starts_with('|')).map(cells).skip(2).collect()
}

/// Fails unless an answer obeys its published schema, and has the fields that the schema requires and no others.
#[cfg(test)]
#[track_caller]
pub(crate) fn obeys(schema: &str, answer: &serde_json::Value) {
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<_> = validator.iter_errors(answer).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(faults.is_empty(), "{faults:?}");
    let mut open = vec![(&schema, answer)];
    while let Some((schema, value)) = open.pop() {
        if let (Some(named), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
            assert!(fields.keys().eq(named.keys()), "{:?} and {:?}", fields.keys(), named.keys());
            open.extend(fields.iter().map(|(name, field)| (&named[name], field)));
        }
        open.extend(value.as_array().into_iter().flatten().map(|item| (&schema["items"], item)));
    }
}

/// Cells of a row.
pub(crate) fn cells(line: &str) -> Vec<String> {
    let line = line.trim().trim_start_matches('|').trim_end_matches('|');
    // A bar within a cell is written `\|`.
    line.replace("\\|", "\u{0}").split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

/// Text without code marks, and with links replaced by their text.
pub(crate) fn bare(markdown: &str) -> String {
    without_links(markdown).replace(['`', '*'], "")
}

/// Text with links replaced by their text.
pub(crate) fn without_links(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        match after.split_once("](").and_then(|(name, target)| Some((name, target.split_once(')')?.1))) {
            Some((name, end)) if !name.contains('[') => {
                out.push_str(name);
                rest = end;
            }
            _ => {
                out.push('[');
                rest = after;
            }
        }
    }
    out + rest
}
