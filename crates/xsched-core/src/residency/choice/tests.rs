use super::*;

fn parts(all: &[Option<(u64, u32)>]) -> Vec<Option<Part>> {
    all.iter().map(|part| part.map(|(bytes, heat)| Part { bytes, heat })).collect()
}

fn chosen(which: &[bool]) -> Vec<usize> {
    (0..which.len()).filter(|&n| which[n]).collect()
}

#[test]
fn launches_heat_the_chunk_that_they_name_and_the_rest_of_its_array() {
    // Two allocations, of 3 and 2 chunks, that lie side by side, and one apart.
    let chunks = [(400, 100), (100, 100), (200, 100), (300, 100), (500, 100), (900, 100)];
    let joined = |a: u64, b: u64| (a < 400) == (b < 400);
    let touches = [(120, 1), (110, 32), (350, 2), (950, 5), (50, 9), (1_000, 9), (700, 9)];
    let touches = touches.map(|(at, heat)| Touch { at, heat });
    assert_eq!(heats(&chunks, touches, joined), [0, 33, 33, 33, 0, 5]);
    assert_eq!(heats(&chunks, touches, |_, _| true), [33, 33, 33, 33, 33, 5]);
    assert_eq!(heats(&[], touches, joined), []);
    let hottest = [u32::MAX, 7].map(|heat| Touch { at: 900, heat });
    assert_eq!(heats(&chunks, hottest, joined)[5], u32::MAX);
}

#[test]
fn heat_falls_with_the_distance() {
    let chunks: Vec<(u64, u64)> = (0..6).map(|n| (n * HALF / 2, HALF / 2)).collect();
    let touches = [(10, 400), (HALF + 1, 40), (2 * HALF, 101)].map(|(at, heat)| Touch { at, heat });
    assert_eq!(heats(&chunks, touches, |_, _| true), [400, 400, 200, 200, 101, 101]);
}

#[test]
fn the_coldest_go_and_of_equals_the_last_added() {
    let all = parts(&[Some((10, 3)), None, Some((10, 0)), Some((10, 7)), Some((10, 0)), Some((10, 3))]);
    assert_eq!(chosen(&coldest(&all, 0)), []);
    assert_eq!(chosen(&coldest(&all, 1)), [4]);
    assert_eq!(chosen(&coldest(&all, 20)), [2, 4]);
    assert_eq!(chosen(&coldest(&all, 21)), [2, 4, 5]);
    assert_eq!(chosen(&coldest(&all, 1_000)), [0, 2, 3, 4, 5]);
}

#[test]
fn the_hottest_that_fit_come_back() {
    let all = parts(&[Some((10, 3)), None, Some((30, 9)), Some((10, 7)), Some((10, 0))]);
    assert_eq!(chosen(&hottest(&all, 9)), []);
    assert_eq!(chosen(&hottest(&all, 20)), [0, 3]);
    assert_eq!(chosen(&hottest(&all, 45)), [2, 3]);
    assert_eq!(chosen(&hottest(&all, 60)), [0, 2, 3, 4]);
}

#[test]
fn only_much_hotter_chunks_change_places_and_the_device_holds_no_more() {
    let device = parts(&[Some((10, 1)), None, Some((10, 2)), Some((10, 40)), None, None]);
    let host = parts(&[None, Some((20, 64)), None, None, Some((10, 4)), Some((10, 8))]);
    let (goes, comes) = exchange(&device, &host, u64::MAX);
    assert_eq!((chosen(&goes), chosen(&comes)), (vec![0, 2], vec![1]));
    let (goes, comes) = exchange(&device, &host, 10);
    assert_eq!((chosen(&goes), chosen(&comes)), (vec![0], vec![5]));
    let alike = parts(&[None, Some((10, 2)), None, None, Some((10, 3)), None]);
    assert_eq!(exchange(&device, &alike, u64::MAX), (vec![false; 6], vec![false; 6]));
}
