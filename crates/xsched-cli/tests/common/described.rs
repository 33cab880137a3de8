//! Tables and schemas of what is described by its declaration: `xsched_proto::described`.

use xsched_proto::described::{Described, Field, Shape};
use xsched_proto::statistics::{GroupInfo, HeardLate, QueueInfo, Unscheduled, Waits, Yielding};

/// Tables of `docs/reference/ps-json.md` that follow from declarations, by their headings.
pub(crate) fn tables() -> [(&'static str, Shape); 6] {
    [
        ("programs[].groups[]", GroupInfo::SHAPE),
        ("programs[].groups[].queues[]", QueueInfo::SHAPE),
        ("programs[].groups[].waits", Waits::SHAPE),
        ("programs[].groups[].heard_late", HeardLate::SHAPE),
        ("programs[].groups[].unscheduled", Unscheduled::SHAPE),
        ("programs[].groups[].yielding", Yielding::SHAPE),
    ]
}

fn fields(shape: Shape) -> &'static [Field] {
    match shape {
        Shape::Object(fields) => fields,
        _ => panic!("no object: {shape:?}"),
    }
}

/// A text as a table goes on with it: a word in the middle of a line.
pub(crate) fn continued(text: &str) -> String {
    if let Some(link) = text.strip_prefix('[') {
        return format!("[{}", continued(link));
    }
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            format!("{}{}", first.to_lowercase(), &text[first.len_utf8()..])
        }
        _ => text.to_owned(),
    }
}

/// Type of a field in the reference.
fn kind(shape: Shape) -> String {
    match shape {
        Shape::Integer | Shape::Number => "number".into(),
        Shape::Boolean => "boolean".into(),
        Shape::Text | Shape::OneOf(_) => "text".into(),
        Shape::List(_) => "list".into(),
        Shape::Object(_) => "object".into(),
        Shape::Optional(of) => format!("{} or null", kind(*of)),
    }
}

/// The table of the fields.
pub(crate) fn table(shape: Shape) -> String {
    let row = |field: &Field| {
        let text = continued(&field.text()).replace('|', "\\|");
        format!("| `{}` | {} | {text} |\n", field.name, kind(field.shape))
    };
    format!("| field | type | meaning |\n| --- | --- | --- |\n{}", fields(shape).iter().map(row).collect::<String>())
}

/// A page with the table below a heading replaced.
pub(crate) fn with_table(page: &str, heading: &str, table: &str) -> String {
    let head = format!("## `{heading}`\n");
    let at = page.find(&head).unwrap_or_else(|| panic!("no heading {heading}")) + head.len();
    let (before, section) = page.split_at(at);
    let begin = section.find("| field |").expect("a table");
    let end = section[begin..].find("\n\n").map_or(section.len(), |end| begin + end + 1);
    format!("{before}{}{table}{}", &section[..begin], &section[end..])
}

/// Words without marks of code, and links as their text.
pub(crate) fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out += before;
        // Brackets of a name, as of `programs[].name`, are no link.
        let link = after.split_once("](").and_then(|(name, target)| Some((name, target.split_once(')')?.1)));
        match link.filter(|(name, _)| !name.contains('[')) {
            Some((name, end)) => {
                out += name;
                rest = end;
            }
            None => {
                out.push('[');
                rest = after;
            }
        }
    }
    (out + rest).replace('`', "")
}

/// Schema of a form, as lines of JSON that are indented by so much.
pub(crate) fn schema(description: &str, shape: Shape, indent: usize) -> String {
    let (shape, is_optional) = match shape {
        Shape::Optional(of) => (*of, true),
        shape => (shape, false),
    };
    let pad = " ".repeat(indent + 2);
    let quoted = |text: &str| serde_json::to_string(text).expect("text");
    let list = |items: Vec<String>| {
        let items: Vec<String> = items.iter().map(|item| format!("{pad}  {item}")).collect();
        format!("[\n{}\n{pad}]", items.join(",\n"))
    };
    let typed = |name: &str| match is_optional {
        true => list(vec![quoted(name), quoted("null")]),
        false => quoted(name),
    };
    let mut parts: Vec<(&str, String)> = Vec::new();
    if !description.is_empty() {
        parts.push(("description", quoted(&bare(&continued(description)))));
    }
    match shape {
        Shape::Integer => parts.push(("type", typed("integer"))),
        Shape::Number => parts.push(("type", typed("number"))),
        Shape::Boolean => parts.push(("type", typed("boolean"))),
        Shape::Text => parts.push(("type", typed("string"))),
        Shape::OneOf(words) => {
            let mut words: Vec<String> = words.iter().map(|word| quoted(&word.to_lowercase())).collect();
            words.extend(is_optional.then(|| "null".to_owned()));
            parts.extend([("enum", list(words)), ("type", typed("string"))]);
        }
        Shape::List(of) => parts.extend([("type", typed("array")), ("items", schema("", *of, indent + 2))]),
        Shape::Object(fields) => {
            let names = fields.iter().map(|field| quoted(field.name)).collect();
            let property = |field: &Field| {
                format!("{pad}  {}: {}", quoted(field.name), schema(&field.text(), field.shape, indent + 4))
            };
            let properties = fields.iter().map(property).collect::<Vec<_>>().join(",\n");
            parts.extend([
                ("type", typed("object")),
                ("required", list(names)),
                ("properties", format!("{{\n{properties}\n{pad}}}")),
            ]);
        }
        Shape::Optional(_) => panic!("optional twice"),
    }
    let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{pad}\"{name}\": {value}")).collect();
    format!("{{\n{}\n{}}}", parts.join(",\n"), " ".repeat(indent))
}

/// The schema of `ps --json` with that of the groups replaced.
pub(crate) fn with_groups(published: &str) -> String {
    let begin = published.find("\"groups\": {").expect("the groups") + "\"groups\": ".len();
    let line = published[..begin].rfind('\n').expect("a line") + 1;
    let indent = published[line..].len() - published[line..].trim_start().len();
    // Its end is the brace below its beginning.
    let close = format!("\n{}}}", " ".repeat(indent));
    let end = begin + published[begin..].find(&close).expect("its end") + close.len();
    let groups = schema("Groups of the program", Shape::List(&GroupInfo::SHAPE), indent);
    format!("{}{groups}{}", &published[..begin], &published[end..])
}
