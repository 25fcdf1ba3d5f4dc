//! `podium image …`: the embedded runtime's image store, used directly, so it
//! works with and without a running agent.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ambient::Clock;
use anyhow::{Context, Result, anyhow, bail};
use cri::{Image as Stored, RegistryAuth};
use engine::images::{ImageError, Images, PullOptions};
use lifecycle::node::{ImageSeen, ImageStock, Settings, collect_images};

use crate::cli::{Image, Output};
use crate::containers;
use crate::instance::{Places, make_private_dir};

mod progress;

pub(crate) fn run(verb: Image) -> Result<()> {
    match verb {
        Image::Pull { image, creds_stdin, plain_http, registries, place } => {
            let images = open(&place.places())?.with_registries(containers::registries(&registries, plain_http));
            pull(images, &image, credentials(creds_stdin)?)
        }
        Image::Import { file, tag, place } => import(&open(&place.places())?, &file, tag.as_deref()),
        Image::Ls { output, place } => list(&open(&place.places())?, output),
        Image::Rm { image, place } => remove(&place.places(), &image),
        Image::Gc { high, low, min_age, all, place } => {
            let (high, low, min_age) = if all { (0, 0, Duration::ZERO) } else { (high, low, min_age) };
            if low > high {
                bail!("--low ({low}) must not be above --high ({high})");
            }
            collect(&place.places(), high, low, min_age)
        }
    }
}

fn open(places: &Places) -> Result<Images> {
    make_private_dir(&places.data)?;
    Ok(Images::open(places.images())?)
}

fn pull(images: Images, reference: &str, auth: Option<RegistryAuth>) -> Result<()> {
    let images = Arc::new(images);
    let display = progress::Layers::new();
    let options = PullOptions { auth, watcher: Some(display.watcher()) };
    let runtime = tokio::runtime::Runtime::new()?;
    let outcome = runtime.block_on(images.pull(reference, options));
    display.finish();
    let image = outcome.map_err(|error| explain(&error, reference))?;
    for name in image.repo_tags.iter().chain(&image.repo_digests) {
        println!("{name}");
    }
    Ok(())
}

/// `user:password`, from where others cannot see it.
fn credentials(from_stdin: bool) -> Result<Option<RegistryAuth>> {
    let text = match (from_stdin, std::env::var("PODIUM_REGISTRY_CREDS")) {
        (true, _) => io::read_to_string(io::stdin().lock().take(CREDENTIALS_BYTES_MAX))?,
        (false, Ok(text)) if !text.is_empty() => text,
        _ => return Ok(None),
    };
    let (username, password) =
        text.trim_end_matches(['\n', '\r']).split_once(':').context("credentials must be user:password")?;
    Ok(Some(RegistryAuth::Basic { username: username.to_owned(), password: password.to_owned() }))
}

const CREDENTIALS_BYTES_MAX: u64 = 64 << 10;

/// The error and what to do about it.
fn explain(error: &ImageError, reference: &str) -> anyhow::Error {
    let cause = match error {
        ImageError::Pull { source, .. } => source,
        other => other,
    };
    let advice = match cause {
        ImageError::NotInRegistry { .. } => {
            "the registry has no such image: check the spelling, the tag and the registry's name".to_owned()
        }
        ImageError::Denied { .. } => format!(
            "check the spelling; if the image is private, log in: \
             printf 'USER:PASSWORD' | podium image pull --creds-stdin {reference}"
        ),
        ImageError::RegistryUnavailable { detail, .. } if detail.contains("InvalidContentType") => {
            "the registry does not speak TLS: if that is right, use --plain-http".to_owned()
        }
        ImageError::RegistryUnavailable { detail, .. } if detail.contains("certificate") => {
            "if the registry has an authority of its own, name it in hosts.toml (docs/images.md)".to_owned()
        }
        ImageError::RegistryUnavailable { .. } => {
            "check the network and the registry's name; mirrors are configured in hosts.toml (docs/images.md), \
             and `podium image import` needs no registry"
                .to_owned()
        }
        _ => return anyhow!("{error}"),
    };
    anyhow!("{error}\n  {advice}")
}

fn import(images: &Images, file: &Path, tag: Option<&str>) -> Result<()> {
    let (source, length): (Box<dyn Read>, Option<u64>) = if file == Path::new("-") {
        (Box::new(io::stdin().lock()), None)
    } else {
        let opened = File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
        let length = opened.metadata().ok().map(|metadata| metadata.len());
        (Box::new(opened), length)
    };
    let source = progress::reading(source, length);
    for image in images.import(source, tag).with_context(|| format!("cannot import {}", file.display()))? {
        for name in &image.repo_tags {
            println!("{name}");
        }
    }
    Ok(())
}

fn list(images: &Images, output: Output) -> Result<()> {
    let stored = images.list()?;
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&stored)?),
        Output::Text => print!("{}", table(&stored)),
    }
    Ok(())
}

fn table(images: &[Stored]) -> String {
    let names = |image: &Stored| match image.repo_tags.is_empty() {
        true => vec!["<none>".to_owned()],
        false => image.repo_tags.clone(),
    };
    let rows: Vec<(String, &Stored)> =
        images.iter().flat_map(|image| names(image).into_iter().map(move |name| (name, image))).collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max("IMAGE".len());
    let mut text = format!("{:width$}   {:12}   SIZE\n", "IMAGE", "ID");
    for (name, image) in rows {
        let id = image.id.trim_start_matches("sha256:");
        let short = id.get(..12).unwrap_or(id);
        text.push_str(&format!("{name:width$}   {short:12}   {}\n", human_size(image.size_bytes)));
    }
    text
}

fn human_size(bytes: u64) -> String {
    let megabytes = bytes / 100_000;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", megabytes / 10, megabytes % 10),
    }
}

fn remove(places: &Places, image: &str) -> Result<()> {
    let images = open(places)?;
    if images.resolve(image)?.is_none() {
        bail!("no image {image:?} here: `podium image ls` lists them");
    }
    images.remove(image)?;
    sweep(places, &images)
}

/// Deletes layers that neither an image nor a container needs.
fn sweep(places: &Places, images: &Images) -> Result<()> {
    let engine = places.engine();
    images.sweep(|| Ok(engine::layers_in_use(&engine)?.into_iter().flatten().collect()))?;
    Ok(())
}

fn collect(places: &Places, high: u8, low: u8, min_age: Duration) -> Result<()> {
    let images = open(places)?;
    let stock = stock(places, &images)?;
    let settings =
        Settings { image_high_percent: high, image_low_percent: low, image_min_age: min_age, ..Settings::upstream() };
    let doomed = collect_images(&stock, &settings, Clock::system().now()).doomed;
    let known = images.list()?;
    for id in &doomed {
        images.remove(id)?;
        let image = known.iter().find(|image| image.id == *id);
        let name = image.and_then(|image| image.repo_tags.first()).unwrap_or(id);
        println!("removed {name} ({})", human_size(image.map_or(0, |image| image.size_bytes)));
    }
    sweep(places, &images)?;
    if doomed.is_empty() {
        println!("nothing to remove: {}% of the disk is used", used_percent(&stock));
    }
    Ok(())
}

fn used_percent(stock: &ImageStock) -> i64 {
    100 - stock.available_bytes * 100 / stock.capacity_bytes.max(1)
}

/// An image is used while a container stands on its layers.
fn stock(places: &Places, images: &Images) -> Result<ImageStock> {
    let in_use: BTreeSet<Vec<PathBuf>> = engine::layers_in_use(&places.engine())?.into_iter().collect();
    let disk = rustix::fs::statvfs(places.images())?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(disk.f_frsize)).unwrap_or(i64::MAX);
    let seen = images.stock()?.into_iter().map(|stored| ImageSeen {
        is_used: in_use.contains(&stored.layers),
        id: stored.image.id,
        size_bytes: i64::try_from(stored.image.size_bytes).unwrap_or(i64::MAX),
        is_pinned: stored.image.is_pinned,
        first_seen: stored.last_used,
        last_used: Some(stored.last_used),
    });
    Ok(ImageStock {
        capacity_bytes: bytes(disk.f_blocks),
        available_bytes: bytes(disk.f_bavail),
        images: seen.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_listed_one_name_a_line() {
        let image = Stored {
            id: "sha256:0123456789abcdef".into(),
            repo_tags: vec!["docker.io/library/busybox:1.28".into(), "docker.io/library/busybox:1.36".into()],
            repo_digests: vec![],
            size_bytes: 2_012_345,
            user: None,
            is_pinned: false,
        };
        expect_test::expect![[r"
            IMAGE                            ID             SIZE
            docker.io/library/busybox:1.28   0123456789ab   2.0 MB
            docker.io/library/busybox:1.36   0123456789ab   2.0 MB
        "]]
        .assert_eq(&table(&[image]));
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let reference = "registry.example/app:v1".to_owned();
        let advice = |source: ImageError| {
            let error =
                ImageError::Pull { reference: reference.clone(), source: Box::new(source), mirrors: String::new() };
            explain(&error, &reference).to_string()
        };
        let detail = "401 Unauthorized".to_owned();
        assert!(advice(ImageError::Denied { reference: reference.clone(), detail }).contains("--creds-stdin"));
        assert!(advice(ImageError::NotInRegistry { reference: reference.clone() }).contains("check the spelling"));
        let down =
            |detail: &str| ImageError::RegistryUnavailable { reference: reference.clone(), detail: detail.into() };
        assert!(advice(down("received corrupt message of type InvalidContentType")).contains("--plain-http"));
        assert!(advice(down("invalid peer certificate: UnknownIssuer")).contains("hosts.toml"));
        assert!(advice(down("Connection refused")).contains("check the network"));
        let other = advice(ImageError::Nonsense { detail: "x".into() });
        assert_eq!(other.lines().count(), 1, "no advice is better than a wrong one");
    }
}
