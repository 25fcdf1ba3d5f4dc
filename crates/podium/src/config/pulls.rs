//! What a `KubeletConfiguration` says about pulling images and who may use
//! them then (LC-312, LC-313).

use anyhow::{Result, bail, ensure};
use kubelet::{ImageTrust, PullLimits};
use objects::gates::Gates;

use super::node::KubeletConfiguration;

impl KubeletConfiguration {
    /// In upstream's words.
    pub(super) fn check_pulls(&self) -> Result<()> {
        let burst = self.registry_burst.unwrap_or(0);
        ensure!(burst >= 0, "registryBurst (--registry-burst) {burst} must not be a negative number");
        let rate = self.registry_pull_qps.unwrap_or(0);
        ensure!(rate >= 0, "registryPullQPS (--registry-qps) {rate} must not be a negative number");
        self.parse_image_trust()?;
        let Some(at_once) = self.max_parallel_image_pulls else { return Ok(()) };
        ensure!(at_once >= 1, "maxParallelImagePulls {at_once} must be a positive number");
        ensure!(
            at_once == 1 || !self.is_serial(),
            "maxParallelImagePulls cannot be larger than 1 unless SerializeImagePulls (--serialize-image-pulls) set to false"
        );
        Ok(())
    }

    pub(crate) fn pull_limits(&self) -> PullLimits {
        let default = PullLimits::default();
        let at_once = match self.is_serial() {
            true => Some(1),
            false => self.max_parallel_image_pulls.and_then(|at_once| usize::try_from(at_once).ok()),
        };
        let number = |set: Option<i32>, default| set.map_or(default, |set| u32::try_from(set).unwrap_or(0));
        PullLimits {
            at_once,
            per_second: number(self.registry_pull_qps, default.per_second),
            burst: number(self.registry_burst, default.burst),
        }
    }

    /// LC-312.
    pub(crate) fn image_trust(&self, gates: &Gates) -> ImageTrust {
        match gates.enabled("KubeletEnsureSecretPulledImages") {
            true => self.parse_image_trust().unwrap_or(ImageTrust::Nothing),
            false => ImageTrust::Everything,
        }
    }

    fn parse_image_trust(&self) -> Result<ImageTrust> {
        let field = "imagePullCredentialsVerificationPolicy";
        let list = &self.preloaded_images_verification_allowlist;
        let trust = match self.image_pull_credentials_verification_policy.as_deref() {
            None | Some("NeverVerifyPreloadedImages") => ImageTrust::Preloaded,
            Some("NeverVerify") => ImageTrust::Everything,
            Some("AlwaysVerify") => ImageTrust::Nothing,
            Some("NeverVerifyAllowlistedImages") => ImageTrust::Listed(list.clone()),
            Some(other) => bail!(
                "{field}: {other:?} is not one of NeverVerify, NeverVerifyPreloadedImages, \
                 NeverVerifyAllowlistedImages, AlwaysVerify"
            ),
        };
        ensure!(
            list.is_empty() || matches!(trust, ImageTrust::Listed(_)),
            "can't set `preloadedImagesVerificationAllowlist` if `{field}` is not \"NeverVerifyAllowlistedImages\""
        );
        Ok(trust)
    }

    /// Who allows several at once need not say that they are not one by one.
    fn is_serial(&self) -> bool {
        self.serialize_image_pulls.unwrap_or(self.max_parallel_image_pulls.is_none_or(|at_once| at_once < 2))
    }
}
