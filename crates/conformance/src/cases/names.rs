//! Names are bytes. Whatever they look like to a store, a shell or a reader, different names are different locks.

use leasehold::{Guard, NAME_BYTES_MAX};

use crate::World;

/// Names that are alike to somebody: to a path, a pattern, a URL, a collation, a terminal, or the eye.
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "a",
        "A",
        "aa",
        "a ",
        " a",
        "a b",
        "a/",
        "/a",
        "a/b",
        "a//b",
        "a/./b",
        "../a",
        "a/..",
        ".",
        "..",
        "/",
        "//",
        "%",
        "%2F",
        "%2f",
        "%252F",
        "a%2Fb",
        "a\0b",
        "a\0",
        "\0",
        "\n",
        "a\r\nb",
        "\t",
        "*",
        "?",
        "[a]",
        "{a}",
        "{a}b",
        "{}",
        "a:b",
        "a:",
        ":",
        "::",
        "a.b",
        "a-b",
        "a_b",
        "a+b",
        "a,b",
        "a;b",
        "a=b",
        "a&b",
        "a#b",
        "a@b",
        "a\\b",
        "'",
        "\"",
        "`",
        "$a",
        "${a}",
        "'; drop table locks; --",
        "\u{1b}[2J",
        "é",
        "e\u{301}",
        "ß",
        "ss",
        "SS",
        "İ",
        "i",
        "I",
        "ı",
        "ﬁ",
        "fi",
        "Ａ",
        "🔒",
        "👩‍👩‍👧",
        "\u{202e}a",
        "a\u{200b}",
        "\u{feff}a",
        "\u{ffff}",
        "\u{10ffff}",
        "0",
        "00",
        "-1",
        "null",
        "true",
        "lock",
        "lock:a",
        "queue",
        "ticket",
        "0000000001",
        "_c_-lock-0000000000",
    ]
    .into_iter()
    .map(|name| name.as_bytes().to_owned())
    .collect();
    names.extend([
        vec![0xff],
        vec![0xfe],
        b"a\xff".to_vec(),
        b"a\xc3".to_vec(),
        vec![0xc0, 0x80],
        vec![0xed, 0xa0, 0x80],
    ]);
    // The longest ones, different at either end only, in bytes of which an encoding may need three.
    for byte in [b'x', b'/', 0xff] {
        let longest = vec![byte; NAME_BYTES_MAX];
        let (mut first, mut last) = (longest.clone(), longest.clone());
        first[0] = b'y';
        last[NAME_BYTES_MAX - 1] = b'y';
        names.extend([longest[..NAME_BYTES_MAX - 1].to_vec(), longest, first, last]);
    }
    names
}

pub async fn odd_names_are_different_locks_and_found_again_byte_for_byte(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let mut names = odd_names();
    let mut held: Vec<(Vec<u8>, Guard)> = Vec::new();
    for name in &names {
        let guard = client.mutex(name).unwrap().try_lock().await.unwrap();
        let guard = guard.unwrap_or_else(|| panic!("{:?} is another's lock too", name.escape_ascii().to_string()));
        assert_eq!(guard.key().name(), name);
        held.push((name.clone(), guard));
    }
    for (name, guard) in &held {
        let view = world.line(&other, name).await;
        assert_eq!((view.key.name(), view.holders.len()), (&name[..], 1));
        assert_eq!(view.holders[0].place.entry, guard.entry(), "{}", name.escape_ascii());
        assert!(other.mutex(name).unwrap().try_lock().await.unwrap().is_none());
    }
    names.sort_unstable();
    let all = other.inspect_all().await.unwrap();
    assert_eq!(all.iter().map(|view| view.key.name().to_owned()).collect::<Vec<_>>(), names);

    world.pass(world.ttl() * 2).await;
    let mut left = names.len();
    for (name, guard) in held {
        guard.check().unwrap_or_else(|error| panic!("{}: {error}", name.escape_ascii()));
        guard.release().await.unwrap();
        left -= 1;
        assert_eq!(other.inspect(&name).await.unwrap(), None, "{}", name.escape_ascii());
        assert_eq!(other.inspect_all().await.unwrap().len(), left, "after releasing {}", name.escape_ascii());
    }
}

/// A waiter is woken by its own key and handed its own key, whatever the name.
pub async fn odd_names_are_handed_over(world: World) {
    let (client, other) = (world.client().await, world.client().await);
    let queueing = world.capabilities().await.queueing;
    for name in [&b"../a"[..], b"{a}b", b"a\0b", b"%2F", b"\xff", b"*", "e\u{301}".as_bytes(), &[b'/'; NAME_BYTES_MAX]]
    {
        let guard = client.mutex(name).unwrap().lock().await.unwrap();
        let mutex = other.mutex(name).unwrap();
        let waiting = tokio::spawn(async move { mutex.lock().await });
        if queueing {
            world.until_waiting(&client, name, 1).await;
        }
        let last = guard.token();
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        assert!(next.token() > last && next.key().name() == name);
        next.release().await.unwrap();
    }
    assert_eq!(client.inspect_all().await.unwrap(), []);
}
