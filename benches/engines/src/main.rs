//! What the record costs on the disk beside embedded engines that hold the same packed bytes. Each second has a journal
//! entry, which is on the disk after five seconds. Each hour has a block of each series, which replaces the entries.
//!
//! `cargo run --release --manifest-path benches/engines/Cargo.toml`

#[path = "../../../tests/record/random.rs"]
mod random;

use std::error::Error;
use std::fs;
use std::path::Path;

use random::{MIX, Random};
use redb::{Database, Durability, TableDefinition};
use tollgate::record::{Record, Second, Series, SeriesKind, Settings};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HOUR_SECONDS: u64 = 3_600;
const HOUR_COUNT: u64 = 6;
/// The seconds after which a written entry is on the disk.
const SYNC_SECONDS: u64 = 5;
/// The first second that is recorded, a midnight.
const START_SECOND: u64 = 20_011 * 86_400;

/// Bytes that no engine can pack any further.
fn random_bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.below(256) as u8).collect()
}

/// The sizes of packed entries in bytes.
struct PackedSizes {
    /// A journal entry of one second.
    second: usize,
    /// A block of one series and one hour.
    block: usize,
}

/// The bytes of all files in a folder and its subfolders.
fn folder_bytes(path: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let file = entry.metadata()?;
        total += if file.is_dir() {
            folder_bytes(&entry.path())?
        } else {
            file.len()
        };
    }
    Ok(total)
}

/// The bytes that this process has written so far.
fn written_bytes() -> Result<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    Ok(line.ok_or("no figure")?.parse()?)
}

/// Runs an engine in a folder, and prints the bytes that it kept and wrote for each point.
fn measure(name: &str, run: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let before = written_bytes()?;
    run(folder.path())?;
    let points = (MIX.len() as u64 * HOUR_COUNT * HOUR_SECONDS) as f64;
    let kept = folder_bytes(folder.path())? as f64 / points;
    let written = (written_bytes()? - before) as f64 / points;
    println!("| {name} | {kept:.3} | {written:.2} |");
    Ok(())
}

fn run_record(folder: &Path) -> Result<()> {
    let record = Record::open(&Settings {
        folder: Some(folder.to_owned()),
        max_bytes: 1 << 30,
    })?;
    let number = |index: usize| {
        let (name, labels) = (format!("things_{index}"), Vec::new());
        record.number_of(&Series {
            name,
            labels,
            kind: SeriesKind::Counter,
            decimals: 0,
        })
    };
    let numbers: Option<Vec<u32>> = (0..MIX.len()).map(number).collect();
    let numbers = numbers.ok_or("too many series")?;
    let mut random = Random(42);
    // The last hour is written when two minutes of the next one have passed.
    for at in START_SECOND..START_SECOND + HOUR_COUNT * HOUR_SECONDS + 130 {
        let values = MIX
            .iter()
            .zip(&numbers)
            .map(|(mean, number)| (*number, random.poisson(*mean)));
        let values = values.filter(|(_, value)| *value > 0).collect();
        record.add(Second { at, values });
        record.write_pending()?;
    }
    record.close()?;
    Ok(())
}

const SECONDS: TableDefinition<u64, &[u8]> = TableDefinition::new("seconds");
const BLOCKS: TableDefinition<(u32, u64), &[u8]> = TableDefinition::new("blocks");

fn run_redb(folder: &Path, sizes: &PackedSizes) -> Result<()> {
    let mut database = Database::create(folder.join("record"))?;
    let mut random = Random(7);
    for at in START_SECOND..START_SECOND + HOUR_COUNT * HOUR_SECONDS {
        let mut transaction = database.begin_write()?;
        let synced = at % SYNC_SECONDS == 0;
        transaction.set_durability(if synced {
            Durability::Immediate
        } else {
            Durability::None
        })?;
        {
            let mut seconds = transaction.open_table(SECONDS)?;
            seconds.insert(at, &*random_bytes(&mut random, sizes.second))?;
            if (at + 1) % HOUR_SECONDS == 0 {
                let mut blocks = transaction.open_table(BLOCKS)?;
                for series in 0..MIX.len() as u32 {
                    blocks.insert(
                        (series, at - at % HOUR_SECONDS),
                        &*random_bytes(&mut random, sizes.block),
                    )?;
                }
                seconds.retain(|_, _| false)?;
            }
        }
        transaction.commit()?;
    }
    // Without this redb never gives space back.
    database.compact()?;
    Ok(())
}

fn run_fjall(folder: &Path, sizes: &PackedSizes) -> Result<()> {
    let database = fjall::Database::builder(folder).open()?;
    let seconds = database.keyspace("seconds", fjall::KeyspaceCreateOptions::default)?;
    let blocks = database.keyspace("blocks", fjall::KeyspaceCreateOptions::default)?;
    let mut random = Random(7);
    for at in START_SECOND..START_SECOND + HOUR_COUNT * HOUR_SECONDS {
        seconds.insert(at.to_be_bytes(), random_bytes(&mut random, sizes.second))?;
        if (at + 1) % HOUR_SECONDS == 0 {
            let hour = at - at % HOUR_SECONDS;
            for series in 0..MIX.len() as u32 {
                let key = [&series.to_be_bytes()[..], &hour.to_be_bytes()].concat();
                blocks.insert(key, random_bytes(&mut random, sizes.block))?;
            }
            for second in hour..hour + HOUR_SECONDS {
                seconds.remove(second.to_be_bytes())?;
            }
        }
        if at % SYNC_SECONDS == 0 {
            database.persist(fjall::PersistMode::SyncData)?;
        }
    }
    seconds.rotate_memtable_and_wait()?;
    blocks.rotate_memtable_and_wait()?;
    Ok(())
}

fn main() -> Result<()> {
    println!("| engine | bytes kept a point | bytes written a point |\n|---|---|---|");
    let mut sizes = PackedSizes {
        second: 0,
        block: 0,
    };
    measure("own files", |folder| {
        run_record(folder)?;
        let blocks = HOUR_COUNT as usize * MIX.len();
        sizes.block = folder_bytes(&folder.join("1s"))? as usize / blocks;
        Ok(())
    })?;
    // An entry has a number and a value of each series that is not idle in that second.
    sizes.second = 2 * MIX.iter().filter(|mean| **mean >= 1.0).count();
    measure("redb", |folder| run_redb(folder, &sizes))?;
    measure("fjall", |folder| run_fjall(folder, &sizes))
}
