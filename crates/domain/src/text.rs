//! Serializes values as the text that `Display` writes and `FromStr` reads.

/// With `or`, the text is for formats that people read, such as JSON, and stores keep the number.
macro_rules! serialize_as_text {
    ($type:ty $(, or $number:ty)?) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $(if !serializer.is_human_readable() {
                    return <$number>::serialize(&self.0, serializer);
                })?
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                $(if !input.is_human_readable() {
                    return <$number>::deserialize(input).map(Self);
                })?
                String::deserialize(input)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
