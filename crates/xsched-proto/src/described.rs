//! Descriptions of what `--json` prints, taken from its declaration: a structure in [`described!`](crate::described!) is what travels, and its
//! fields with their documentation are what the schema and the page of the reference say.

/// Field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name, with its unit.
    pub name: &'static str,
    /// Lines of its documentation.
    lines: &'static [&'static str],
    /// The form of its values.
    pub shape: Shape,
}

/// Form of values.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A number without a fraction.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A text.
    Text,
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// Values of one form.
    List(&'static Shape),
    /// An object with fields.
    Object(&'static [Field]),
    /// A value or null.
    Optional(&'static Shape),
}

/// Something that `--json` prints.
pub trait Described {
    /// Its form.
    const SHAPE: Shape;
}

impl Field {
    /// A field by its declaration.
    pub const fn new(name: &'static str, lines: &'static [&'static str], shape: Shape) -> Field {
        Field { name, lines, shape }
    }

    /// The description: Markdown, as below a heading of the reference, without a full stop.
    pub fn text(&self) -> String {
        let text = self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        text.trim_end_matches('.').to_owned()
    }

    /// The first part of the description: the help of a metric.
    pub fn help(&self) -> String {
        let text = self.text();
        text.split([';', ':']).next().unwrap_or_default().to_owned()
    }
}

impl Shape {
    /// The field of this name in an object that is known to have it.
    pub const fn field(self, name: &str) -> Field {
        let Shape::Object(fields) = self else { panic!("no object") };
        let mut at = 0;
        while at < fields.len() {
            if is_same(fields[at].name.as_bytes(), name.as_bytes()) {
                return fields[at];
            }
            at += 1;
        }
        panic!("no such field")
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

macro_rules! shapes {
    ($($type:ty => $shape:ident),*) => {
        $(impl Described for $type {
            const SHAPE: Shape = Shape::$shape;
        })*
    };
}

shapes!(u8 => Integer, u32 => Integer, u64 => Integer, i32 => Integer, f64 => Number, bool => Boolean, String => Text);

impl<T: Described> Described for Option<T> {
    const SHAPE: Shape = Shape::Optional(&T::SHAPE);
}

impl<T: Described> Described for Vec<T> {
    const SHAPE: Shape = Shape::List(&T::SHAPE);
}

/// Declares a structure with public fields, or an enumeration of words in lower case, that is described by its own documentation.
#[macro_export]
macro_rules! described {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[doc = $line:literal])+ pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[doc = $line])+ pub $field: $type,)*
        }

        impl $crate::described::Described for $name {
            const SHAPE: $crate::described::Shape = $crate::described::Shape::Object(&[$(
                $crate::described::Field::new(
                    stringify!($field),
                    &[$($line),+],
                    <$type as $crate::described::Described>::SHAPE,
                ),
            )*]);
        }
    };
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[doc = $line:literal])+ $word:ident,)* }) => {
        $(#[$meta])*
        #[serde(rename_all = "lowercase")]
        pub enum $name {
            $($(#[doc = $line])+ $word,)*
        }

        impl $crate::described::Described for $name {
            const SHAPE: $crate::described::Shape = $crate::described::Shape::OneOf(&[$(stringify!($word)),*]);
        }
    };
}
