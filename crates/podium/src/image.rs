//! `podium image …`: the embedded runtime's image store, used directly, so it
//! works with and without a running agent.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};
use cri::Image as Stored;
use engine::images::Images;

use crate::cli::{Image, Output};
use crate::instance::{Places, make_private_dir};

pub(crate) fn run(verb: Image) -> Result<()> {
    match verb {
        Image::Import { file, tag, place } => import(&open(&place.places())?, &file, tag.as_deref()),
        Image::Ls { output, place } => list(&open(&place.places())?, output),
        Image::Rm { image, place } => remove(&open(&place.places())?, &image),
    }
}

fn open(places: &Places) -> Result<Images> {
    make_private_dir(&places.data)?;
    Ok(Images::open(places.images())?)
}

fn import(images: &Images, file: &Path, tag: Option<&str>) -> Result<()> {
    let source: Box<dyn Read> = if file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(file).with_context(|| format!("cannot open {}", file.display()))?)
    };
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

fn remove(images: &Images, image: &str) -> Result<()> {
    if images.resolve(image)?.is_none() {
        bail!("no image {image:?} here: `podium image ls` lists them");
    }
    Ok(images.remove(image)?)
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
}
