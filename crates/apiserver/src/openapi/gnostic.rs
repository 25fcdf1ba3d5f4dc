//! Swagger documents as `openapi.v2.Document` of gnostic, the protobuf form
//! kubectl asks for (API-066).

use serde_json::Value;

/// A message being written.
#[derive(Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number & 0x7f) as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    /// A field with a length: text or another message.
    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn message(&mut self, field: u32, message: Self) -> &mut Self {
        self.bytes(field, &message.0)
    }

    /// Left out if it is not there.
    fn text(&mut self, field: u32, value: &Value) -> &mut Self {
        match value.as_str() {
            Some(text) => self.bytes(field, text.as_bytes()),
            None => self,
        }
    }

    fn texts(&mut self, field: u32, value: &Value) -> &mut Self {
        for text in value.as_array().into_iter().flatten() {
            self.text(field, text);
        }
        self
    }

    fn flag(&mut self, field: u32, value: &Value) -> &mut Self {
        if value == true {
            self.varint(u64::from(field) << 3);
            self.varint(1);
        }
        self
    }

    /// What is no part of the standard, as YAML.
    fn extensions(&mut self, field: u32, of: &Value) -> &mut Self {
        for (name, value) in of.as_object().into_iter().flatten().filter(|(name, _)| name.starts_with("x-")) {
            let mut any = Self::default();
            any.bytes(2, format!("{value}\n").as_bytes());
            self.message(field, named(name, any));
        }
        self
    }
}

/// Every map of gnostic is a list of these.
pub(super) fn named(name: &str, value: Message) -> Message {
    let mut message = Message::default();
    message.bytes(1, name.as_bytes()).message(2, value);
    message
}

/// `Info`.
pub(super) fn info(info: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &info["title"]).text(2, &info["version"]);
    message
}

/// `Schema`.
pub(super) fn schema(schema: &Value) -> Message {
    let mut message = Message::default();
    message.text(1, &schema["$ref"]).text(2, &schema["format"]).text(4, &schema["description"]);
    message.texts(19, &schema["required"]);
    if let Some(values) = schema.get("additionalProperties") {
        let mut item = Message::default();
        item.message(1, self::schema(values));
        message.message(21, item);
    }
    if let Some(name) = schema["type"].as_str() {
        let mut item = Message::default();
        item.bytes(1, name.as_bytes());
        message.message(22, item);
    }
    if let Some(items) = schema.get("items") {
        let mut item = Message::default();
        item.message(1, self::schema(items));
        message.message(23, item);
    }
    if let Some(properties) = schema["properties"].as_object() {
        let mut list = Message::default();
        for (name, property) in properties {
            list.message(1, named(name, self::schema(property)));
        }
        message.message(25, list);
    }
    message.extensions(31, schema);
    message
}

/// `PathItem`.
pub(super) fn path(item: &Value) -> Message {
    let mut message = Message::default();
    for (field, method) in [(2, "get"), (3, "put"), (4, "post"), (5, "delete"), (8, "patch")] {
        if let Some(of) = item.get(method) {
            message.message(field, operation(of));
        }
    }
    for one in item["parameters"].as_array().into_iter().flatten() {
        message.message(9, parameter(one));
    }
    message
}

/// `Operation`.
fn operation(of: &Value) -> Message {
    let mut message = Message::default();
    message.text(5, &of["operationId"]).texts(6, &of["produces"]).texts(7, &of["consumes"]);
    for one in of["parameters"].as_array().into_iter().flatten() {
        message.message(8, parameter(one));
    }
    let mut responses = Message::default();
    for (code, response) in of["responses"].as_object().into_iter().flatten() {
        let mut inner = Message::default();
        inner.text(1, &response["description"]);
        if let Some(of) = response.get("schema") {
            let mut item = Message::default();
            item.message(1, schema(of));
            inner.message(2, item);
        }
        let mut value = Message::default();
        value.message(1, inner);
        responses.message(1, named(code, value));
    }
    message.message(9, responses).extensions(13, of);
    message
}

/// `ParametersItem`.
fn parameter(of: &Value) -> Message {
    let (mut inner, mut parameter, mut item) = (Message::default(), Message::default(), Message::default());
    if of["in"] == "body" {
        inner.text(2, &of["name"]).text(3, &of["in"]).flag(4, &of["required"]).message(5, schema(&of["schema"]));
        parameter.message(1, inner);
    } else {
        inner.flag(1, &of["required"]).text(2, &of["in"]).text(4, &of["name"]);
        let mut place = Message::default();
        if of["in"] == "path" {
            inner.text(5, &of["type"]).flag(19, &of["uniqueItems"]);
            place.message(4, inner);
        } else {
            inner.text(6, &of["type"]).flag(20, &of["uniqueItems"]);
            place.message(3, inner);
        }
        parameter.message(2, place);
    }
    item.message(1, parameter);
    item
}
