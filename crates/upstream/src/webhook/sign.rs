//! The signature of Standard Webhooks, version 1: base64(HMAC-SHA256(secret, `id.timestamp.body`)).
//!
//! The crate `standardwebhooks` makes the same signature, but its last release (1.0.1, March 2024) would add second copies
//! of base64 and of HMAC-SHA256 to the build for these ten lines.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use domain::secret::Secret;
use ring::hmac;

use super::BadWebhookConfig;

/// Signs with one secret, or with two while one replaces the other.
pub(super) struct Signer(Vec<hmac::Key>);

// === impl Signer ===

impl Signer {
    /// Parses `whsec_…`.
    pub(super) fn new<'s>(
        secrets: impl IntoIterator<Item = &'s Secret>,
    ) -> Result<Self, BadWebhookConfig> {
        secrets.into_iter().map(Self::key).collect::<Result<_, _>>().map(Self)
    }

    fn key(secret: &Secret) -> Result<hmac::Key, BadWebhookConfig> {
        let text = secret.expose().trim();
        let encoded = text.strip_prefix("whsec_");
        let encoded = encoded.ok_or(BadWebhookConfig::Secret("it does not start with whsec_"))?;
        let key =
            STANDARD.decode(encoded).map_err(|_| BadWebhookConfig::Secret("it is not base64"))?;
        if !(24..=64).contains(&key.len()) {
            return Err(BadWebhookConfig::Secret("it does not have 24 to 64 bytes"));
        }
        Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// The value of `webhook-signature`: one signature per secret, separated by spaces.
    pub(super) fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let sign = |key: &hmac::Key| {
            let mut signing = hmac::Context::with_key(key);
            signing.update(format!("{id}.{seconds}.").as_bytes());
            signing.update(body);
            format!("v1,{}", STANDARD.encode(signing.sign()))
        };
        self.0.iter().map(sign).collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test vector of the Standard Webhooks libraries.
    #[test]
    fn the_signature_is_the_published_one() {
        let secret = Secret::new("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        let signed = Signer::new([&secret]).unwrap().sign(
            "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
            1_649_367_553,
            br#"{"email":"test@example.com","username":"test_user"}"#,
        );
        assert_eq!(signed, "v1,tZ1I4/hDygAJgO5TYxiSd6Sd0kDW6hPenDe+bTa3Kkw=");
    }

    #[test]
    fn with_two_secrets_there_are_two_signatures() {
        let [new, old] =
            [7u8, 8].map(|byte| Secret::new(format!("whsec_{}", STANDARD.encode([byte; 24]))));
        let sign = |signer: Signer| signer.sign("msg_1", 5, b"{}");
        let both = sign(Signer::new([&new, &old]).unwrap());
        let each = [&new, &old].map(|secret| sign(Signer::new([secret]).unwrap()));
        assert_eq!(both, each.join(" "));
    }

    #[test]
    fn a_secret_of_another_form_is_refused_without_showing_it() {
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        for good in [of(24), of(32), of(64), format!("{}\n", of(24))] {
            assert!(Signer::new([&Secret::new(good.as_str())]).is_ok(), "{good}");
        }
        let canary = "canarycanarycanarycanarycanary!!";
        for bad in
            ["", "whsec_", canary, &format!("whsec_{canary}"), &of(23), &of(65), &of(24)[6..]]
        {
            let refused = Signer::new([&Secret::new(bad)]).err().unwrap();
            assert!(matches!(refused, BadWebhookConfig::Secret(_)), "{bad}");
            assert!(!format!("{refused} {refused:?}").contains("canary"), "{bad}");
        }
    }
}
