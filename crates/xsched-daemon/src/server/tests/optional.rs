//! Optional parts that fail at the start or later: the daemon starts, decides, and says which part is missing.

use std::path::Path;

use super::*;

/// Writes a configuration with an address for monitors. Returns its path.
fn config(folder: &Path, listen: &str) -> std::path::PathBuf {
    let file = folder.join("config.toml");
    std::fs::write(&file, format!("[metrics]\nlisten = \"{listen}\"\n")).expect("written");
    file
}

#[test]
fn metrics_of_the_machines_file_are_left_out_by_a_daemon_beside_the_machines() {
    let [machine, user] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let places = [&machine, &user].map(|folder| folder.path().join("m.sock"));
    let files = [&machine, &user]
        .map(|folder| config(folder.path(), &format!("unix:{}", folder.path().join("m.sock").display())));
    let listens = |usual: &[std::path::PathBuf], not_of: Option<&std::path::PathBuf>| {
        let mut world = World::with(|options| {
            options.usual_config = usual.to_vec();
            options.metrics_not_of = not_of.cloned();
        });
        let (_socket, id, _segment, _eventfd) = world.attach(OTHER);
        world.add_group(id, "sim:0");
        world.decides_for(id);
        let there = places.each_ref().map(|place| place.exists());
        places.iter().for_each(|place| _ = std::fs::remove_file(place));
        there
    };
    assert_eq!(listens(&files[..1], None), [true, false], "the machine's daemon");
    assert_eq!(listens(&files[..1], Some(&files[0])), [false, false], "a user's");
    assert_eq!(listens(&files, Some(&files[0])), [false, true], "a user's with a file of its own");
}
