//! A stroke font: every letter is a few lines on a small grid, drawn at any width, slant and weight.

use std::sync::LazyLock;

use crate::canvas::{Canvas, Point, Rgb};

/// Grid units from the top of a capital to the base line.
const CAP: f32 = 8.0;

/// Points are two digits, x then y (`a` is 10), on a grid whose base line is y 8 and whose small
/// letters begin at y 3. Lines are split by commas; `~` makes one a smooth curve.
const GLYPHS: &[(char, &str)] = &[
    ('A', "08 20 48,15 35"),
    ('B', "00 08,00 20,~20 31 33 24,24 04,~24 45 47 28,28 08"),
    ('C', "~41 30 10 02 06 18 38 47"),
    ('D', "00 08,~00 20 42 46 28 08"),
    ('E', "40 00 08 48,04 34"),
    ('F', "40 00 08,04 34"),
    ('G', "~41 30 10 02 06 18 38 46,46 44 24"),
    ('H', "00 08,40 48,04 44"),
    ('I', "00 08"),
    ('J', "30 36,~36 28 18 06"),
    ('K', "00 08,40 04 48"),
    ('L', "00 08 38"),
    ('M', "08 00 25 40 48"),
    ('N', "08 00 48 40"),
    ('O', "~20 10 02 06 18 38 46 42 30 20"),
    ('P', "00 08,~00 30 41 43 34 04"),
    ('Q', "~20 10 02 06 18 38 46 42 30 20,26 48"),
    ('R', "00 08,~00 30 41 43 34 04,24 48"),
    ('S', "~41 30 10 02 13 34 46 38 18 07"),
    ('T', "00 40,20 28"),
    ('U', "00 06,~06 18 38 46,46 40"),
    ('V', "00 28 40"),
    ('W', "00 18 23 38 40"),
    ('X', "00 48,40 08"),
    ('Y', "00 24 40,24 28"),
    ('Z', "00 40 08 48"),
    ('a', "33 38,~34 23 13 04 07 18 28 36"),
    ('b', "00 08,~05 13 23 34 37 28 18 06"),
    ('c', "~34 23 13 04 07 18 28 37"),
    ('d', "30 38,~35 23 13 04 07 18 28 36"),
    ('e', "05 35,~35 34 23 13 04 07 18 28 37"),
    ('f', "~31 20 11 12,12 18,03 23"),
    ('g', "33 39,~39 2a 1a 09,~34 23 13 04 07 18 28 36"),
    ('h', "00 08,~05 13 23 35,35 38"),
    ('i', "03 08,00 01"),
    ('j', "13 19,~19 0a,10 11"),
    ('k', "00 08,33 05 38"),
    ('l', "00 07,07 18"),
    ('m', "03 08,~04 13 24,24 28,~24 33 44,44 48"),
    ('n', "03 08,~05 13 23 35,35 38"),
    ('o', "~13 04 07 18 28 37 34 23 13"),
    ('p', "03 0a,~05 13 23 34 37 28 18 06"),
    ('q', "33 3a,~34 23 13 04 07 18 28 36"),
    ('r', "03 08,~05 13 23"),
    ('s', "~34 23 13 04 15 26 37 28 18 07"),
    ('t', "10 17,~17 28,03 23"),
    ('u', "03 06,~06 18 28 36,33 38"),
    ('v', "03 18 33"),
    ('w', "03 18 24 38 43"),
    ('x', "03 38,33 08"),
    ('y', "03 18,33 0a"),
    ('z', "03 33 08 38"),
    ('0', "~20 10 02 06 18 28 36 32 20"),
    ('1', "02 20 28"),
    ('2', "~01 10 30 42 33 08,08 48"),
    ('3', "~01 10 30 42 24 46 38 18 07"),
    ('4', "38 30 06 46"),
    ('5', "40 10 03,~03 23 44 46 38 18 07"),
    ('6', "~41 30 10 03 06 18 38 46 34 14 05"),
    ('7', "00 40 18"),
    ('8', "~24 13 11 20 31 33 24 06 07 18 38 47 46 24"),
    ('9', "~43 34 14 02 01 10 30 42 46 38 18"),
    ('.', "08 08"),
    (',', "18 0a"),
    ('-', "05 25"),
    ('%', "08 40,00 01,47 48"),
    ('/', "08 30"),
    ('!', "00 05,08 08"),
    (' ', "08 08"),
];

struct Glyph {
    advance: f32,
    segments: Vec<(Point, Point)>,
}

static FONT: LazyLock<Vec<Option<Glyph>>> = LazyLock::new(|| {
    let mut table: Vec<Option<Glyph>> = (0..128).map(|_| None).collect();
    for &(letter, lines) in GLYPHS {
        table[letter as usize] = Some(glyph(letter, lines));
    }
    table
});

fn glyph(letter: char, lines: &str) -> Glyph {
    let digit = |c: char| c.to_digit(16).unwrap_or(0) as f32;
    let mut segments = Vec::new();
    let mut right = 0.0f32;
    for line in lines.split(',') {
        let smooth = line.starts_with('~');
        let points: Vec<Point> = line
            .trim_start_matches('~')
            .split(' ')
            .filter_map(|pair| {
                let mut digits = pair.chars().map(digit);
                Some((digits.next()?, digits.next()?))
            })
            .collect();
        right = points.iter().fold(right, |r, p| r.max(p.0));
        let path = if smooth { curve(&points) } else { points };
        segments.extend(path.windows(2).map(|p| (p[0], p[1])));
    }
    if letter == ' ' {
        segments.clear();
        right = 1.0;
    }
    Glyph {
        advance: right + 1.7,
        segments,
    }
}

/// A Catmull-Rom curve through the points.
fn curve(points: &[Point]) -> Vec<Point> {
    let at = |i: isize| points[i.clamp(0, points.len() as isize - 1) as usize];
    let mut path = vec![at(0)];
    for i in 0..points.len() as isize - 1 {
        let (a, b, c, d) = (at(i - 1), at(i), at(i + 1), at(i + 2));
        for step in 1..=3 {
            let t = step as f32 / 3.0;
            let blend = |a: f32, b: f32, c: f32, d: f32| {
                0.5 * (2.0 * b
                    + (c - a) * t
                    + (2.0 * a - 5.0 * b + 4.0 * c - d) * t * t
                    + (3.0 * b - a - 3.0 * c + d) * t * t * t)
            };
            path.push((blend(a.0, b.0, c.0, d.0), blend(a.1, b.1, c.1, d.1)));
        }
    }
    path
}

/// How a line of text looks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Face {
    /// Width of a letter against the normal one.
    pub(crate) stretch: f32,
    /// Leaning to the right, in heights.
    pub(crate) slant: f32,
    /// Half the stroke's width, in heights of a capital.
    pub(crate) weight: f32,
    /// Extra room between letters, in grid units.
    pub(crate) spacing: f32,
}

fn known(text: &str) -> impl Iterator<Item = &'static Glyph> {
    text.chars()
        .filter_map(|c| FONT.get(c as usize).and_then(Option::as_ref))
}

impl Face {
    /// Width of `text` for capitals of height 1.
    pub(crate) fn width(&self, text: &str) -> f32 {
        let room = self.spacing + self.weight * 8.0;
        let units: f32 = known(text).map(|g| g.advance + room).sum();
        ((units - 1.7 - room).max(1.0) * self.stretch) / CAP
    }

    /// Draws `text` centred at `centre`, capitals `height` px tall, turned by `turn` (radians).
    pub(crate) fn draw(
        &self,
        canvas: &mut Canvas,
        text: &str,
        centre: Point,
        height: f32,
        turn: f32,
        colour: Rgb,
    ) {
        self.draw_arched(canvas, text, centre, height, turn, 0.0, colour);
    }

    /// The same with the base line bent upwards in the middle by `arch` heights.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn draw_arched(
        &self,
        canvas: &mut Canvas,
        text: &str,
        centre: Point,
        height: f32,
        turn: f32,
        arch: f32,
        colour: Rgb,
    ) {
        let unit = height / CAP;
        let width = self.width(text) * height;
        let (sin, cos) = turn.sin_cos();
        let room = self.spacing + self.weight * 8.0;
        if height < 2.6 {
            // Print too fine to be read is a grey line.
            let (dx, dy) = (width * 0.5 * cos, width * 0.5 * sin);
            let ends = (
                (centre.0 - dx, centre.1 - dy),
                (centre.0 + dx, centre.1 + dy),
            );
            canvas.stroke(&[ends], height * 0.35, colour, 0.6);
            return;
        }
        let mut pen = 0.0f32;
        let mut segments = Vec::new();
        for glyph in known(text) {
            segments.clear();
            let place = |p: Point| {
                let x = (pen + p.0) * unit * self.stretch + (CAP * 0.5 - p.1) * unit * self.slant
                    - width * 0.5;
                let bend = (1.0 - (2.0 * x / width.max(1.0)).powi(2)) * arch * height;
                let y = (p.1 - CAP * 0.5) * unit - bend;
                (centre.0 + x * cos - y * sin, centre.1 + x * sin + y * cos)
            };
            segments.extend(glyph.segments.iter().map(|&(p, q)| (place(p), place(q))));
            if !segments.is_empty() {
                canvas.stroke(&segments, self.weight * height, colour, 1.0);
            }
            pen += glyph.advance + room;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACE: Face = Face {
        stretch: 1.0,
        slant: 0.0,
        weight: 0.08,
        spacing: 0.0,
    };

    #[test]
    fn every_letter_and_digit_leaves_ink_and_no_two_look_alike() {
        let letters: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').collect();
        let drawn: Vec<Vec<Rgb>> = letters
            .iter()
            .map(|letter| {
                let mut canvas = Canvas::new(32, 32, [1.0; 3]);
                FACE.draw(
                    &mut canvas,
                    &letter.to_string(),
                    (16.0, 14.0),
                    18.0,
                    0.0,
                    [0.0; 3],
                );
                canvas.px
            })
            .collect();
        for (i, px) in drawn.iter().enumerate() {
            let ink: f32 = px.iter().map(|p| 1.0 - p[0]).sum();
            assert!(ink > 20.0, "{} {ink}", letters[i]);
            for (j, other) in drawn.iter().enumerate().skip(i + 1) {
                assert!(px != other, "{} {}", letters[i], letters[j]);
            }
        }
    }

    #[test]
    fn a_word_is_as_wide_as_it_says_and_unknown_letters_take_no_room() {
        let mut canvas = Canvas::new(200, 40, [1.0; 3]);
        FACE.draw(&mut canvas, "HIH", (100.0, 20.0), 20.0, 0.0, [0.0; 3]);
        let inked = |x: usize| (0..40).any(|y| canvas.px[y * 200 + x][0] < 0.5);
        let first = (0..200).find(|&x| inked(x)).unwrap();
        let last = (0..200).rfind(|&x| inked(x)).unwrap();
        let wide = FACE.width("HIH") * 20.0;
        assert!(
            ((last - first) as f32 - wide).abs() < 5.0,
            "{first} {last} {wide}"
        );
        assert_eq!(FACE.width("AB"), FACE.width("Aß\u{4e2d}B"));
    }
}
