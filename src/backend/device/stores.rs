//! Experience stores on the device: what is stored is uploaded once, and appended as a store grows.
//!
//! In: stores of the host. Out: their inverted lists, tile by tile ([`kernel::SCAN_TILE_EXPERIENCES`]): a full tile never changes, the
//! open one is written again when it has grown. A store is known by its [`StoreId`](crate::backend::StoreId); what is kept of a store that
//! is gone is let go at the next scan.

use std::sync::{Arc, Weak};

use crate::Result;
use crate::backend::ActivationStore;
use crate::backend::device::kernel::SCAN_TILE_EXPERIENCES;
use crate::backend::device::{Array, Device, Engine, index};

/// An array that grows at its end, in steps that double it.
pub(crate) struct Growing<D: Device, T> {
    array: Option<Array<D, T>>,
    /// Values written.
    len: usize,
}

impl<D: Device, T: bytemuck::Pod> Growing<D, T> {
    fn new() -> Self {
        Self { array: None, len: 0 }
    }

    /// Cuts the array to `at` values and appends these.
    fn put(&mut self, engine: &Engine<D>, at: usize, values: &[T]) -> Result<()> {
        let needed = at + values.len();
        let capacity = self.array.as_ref().map_or(0, Array::len);
        if self.array.is_none() || needed > capacity {
            let larger = engine.array::<T>(needed.max(2 * capacity))?;
            if let Some(old) = &self.array {
                engine.device().copy(old.buffer(), larger.buffer(), at * size_of::<T>())?;
            }
            self.array = Some(larger);
        }
        if let Some(array) = &self.array {
            engine.write(array, at, values)?;
        }
        self.len = needed;
        Ok(())
    }
}

/// One store as the kernels read it.
pub(crate) struct Kept<D: Device> {
    store: Weak<()>,
    /// Experiences that are here.
    stored: usize,
    /// Lists and postings of the full tiles.
    full: (usize, usize),
    tile_lists: Growing<D, u32>,
    list_entities: Growing<D, u32>,
    list_offsets: Growing<D, u32>,
    experiences: Growing<D, u32>,
    values: Growing<D, f64>,
    norms: Growing<D, f64>,
}

/// The arrays of one store.
pub(crate) struct Lists<'a, D: Device> {
    /// Experiences in it.
    pub(crate) stored: usize,
    /// `[tiles + 1]`
    pub(crate) tile_lists: &'a Array<D, u32>,
    /// `[lists]`, ascending within a tile
    pub(crate) list_entities: &'a Array<D, u32>,
    /// `[lists + 1]`
    pub(crate) list_offsets: &'a Array<D, u32>,
    /// `[postings]`, ascending within a list
    pub(crate) experiences: &'a Array<D, u32>,
    /// `[postings]`
    pub(crate) values: &'a Array<D, f64>,
    /// `[stored]`
    pub(crate) norms: &'a Array<D, f64>,
}

impl<D: Device> Kept<D> {
    fn new(store: Weak<()>) -> Self {
        Self {
            store,
            stored: 0,
            full: (0, 0),
            tile_lists: Growing::new(),
            list_entities: Growing::new(),
            list_offsets: Growing::new(),
            experiences: Growing::new(),
            values: Growing::new(),
            norms: Growing::new(),
        }
    }

    /// Appends what the store holds by now.
    fn update(&mut self, engine: &Engine<D>, store: &dyn ActivationStore) -> Result<()> {
        let count = store.count();
        if count <= self.stored {
            return Ok(());
        }
        let first_tile = self.stored / SCAN_TILE_EXPERIENCES;
        let (first_list, first_posting) = self.full;
        let (mut tiles, mut entities, mut offsets) =
            (vec![index(first_list)?], Vec::new(), vec![index(first_posting)?]);
        let (mut experiences, mut values): (Vec<u32>, Vec<f64>) = (Vec::new(), Vec::new());
        for tile in first_tile..count.div_ceil(SCAN_TILE_EXPERIENCES) {
            let range = tile * SCAN_TILE_EXPERIENCES..((tile + 1) * SCAN_TILE_EXPERIENCES).min(count);
            let full = range.len() == SCAN_TILE_EXPERIENCES;
            let mut postings: Vec<(u32, u32, f64)> = Vec::new();
            for x in range {
                let experience = index(x)?;
                postings.extend(store.map(x).iter().map(|(entity, value)| (entity, experience, value)));
            }
            // Experiences ascend already, and a stable sort leaves them so.
            postings.sort_by_key(|&(entity, _, _)| entity);
            for list in postings.chunk_by(|a, b| a.0 == b.0) {
                entities.push(list[0].0);
                experiences.extend(list.iter().map(|&(_, x, _)| x));
                values.extend(list.iter().map(|&(_, _, v)| v));
                offsets.push(index(first_posting + values.len())?);
            }
            tiles.push(index(first_list + entities.len())?);
            if full {
                self.full = (first_list + entities.len(), first_posting + values.len());
            }
        }
        let norms: Vec<f64> = (self.stored..count).map(|x| store.norm(x)).collect();
        self.tile_lists.put(engine, first_tile, &tiles)?;
        self.list_entities.put(engine, first_list, &entities)?;
        self.list_offsets.put(engine, first_list, &offsets)?;
        self.experiences.put(engine, first_posting, &experiences)?;
        self.values.put(engine, first_posting, &values)?;
        self.norms.put(engine, self.stored, &norms)?;
        self.stored = count;
        Ok(())
    }

    fn lists(&self) -> Option<Lists<'_, D>> {
        Some(Lists {
            stored: self.stored,
            tile_lists: self.tile_lists.array.as_ref()?,
            list_entities: self.list_entities.array.as_ref()?,
            list_offsets: self.list_offsets.array.as_ref()?,
            experiences: self.experiences.array.as_ref()?,
            values: self.values.array.as_ref()?,
            norms: self.norms.array.as_ref()?,
        })
    }
}

/// The stores that were scanned and are still there.
pub(crate) struct Stores<D: Device>(Vec<Kept<D>>);

impl<D: Device> Default for Stores<D> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<D: Device> Stores<D> {
    /// The lists of a store as it is now; `None` when it is empty.
    pub(crate) fn lists(&mut self, engine: &Engine<D>, store: &dyn ActivationStore) -> Result<Option<Lists<'_, D>>> {
        let token = store.id().token();
        self.0.retain(|kept| kept.store.strong_count() > 0);
        let known = self.0.iter().position(|kept| kept.store.as_ptr() == Arc::as_ptr(token));
        let at = known.unwrap_or_else(|| {
            self.0.push(Kept::new(Arc::downgrade(token)));
            self.0.len() - 1
        });
        if self.0[at].update(engine, store).is_err() {
            // Other stores may be what fills the device; they are uploaded again when they are next scanned.
            self.0.clear();
            let mut alone = Kept::new(Arc::downgrade(token));
            alone.update(engine, store)?;
            self.0.push(alone);
            return Ok(self.0[0].lists());
        }
        Ok(self.0[at].lists())
    }
}
