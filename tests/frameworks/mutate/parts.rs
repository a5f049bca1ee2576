//! Parts of `multipart/form-data` that readers take apart differently.

use super::bodies::{address, insert, own};
use crate::dimension::Victim;
use crate::draft::{Draft, Media, Pair};
use crate::random::Random;

pub fn part_of_a_file(draft: &mut Draft, _: &Victim, random: &mut Random) {
    draft.media = Media::Multipart;
    let file = random.of(&[
        "; filename=\"x\"",
        "; filename=\"\"",
        "; filename=",
        "; filename*=utf-8''x",
        "; FileName=x",
    ]);
    let decoy = Pair::of(format!("email\"{file}; x=\""), address(random));
    match random.once_in(2) {
        true => insert(draft, decoy, random),
        false => own(draft, |pair| {
            pair.name = format!("email\"{file}; x=\"").into()
        }),
    }
}

pub fn parts_in_a_part(draft: &mut Draft, _: &Victim, random: &mut Random) {
    draft.media = Media::Multipart;
    let content_type = random.of(&[
        "multipart/form-data; xboundary=YY; boundary=XX",
        "multipart/form-data; boundary=XX; xboundary=YY",
        "multipart/form-data; x=\"boundary=YY;\"; boundary=XX",
        "multipart/form-data; boundary=XX; x=\"boundary=YY\"",
        "multipart/form-data; boundary=XX; boundary=YY",
        "multipart/form-data; boundary=XX;boundary*0=YY",
    ]);
    draft.content_type = Some(content_type.into());
    let named = "--YY\r\ncontent-disposition: form-data; name=\"email\"\r\n\r\n";
    own(draft, |pair| {
        pair.name = b"z".to_vec();
        pair.value = [named.as_bytes(), &pair.value, b"\r\n--YY--"].concat();
    });
    insert(draft, Pair::of("email", address(random)), random);
}

pub fn odd_part(draft: &mut Draft, _: &Victim, random: &mut Random) {
    draft.media = Media::Multipart;
    let decoy = address(random);
    let kind = random.below(10);
    own(draft, |pair| match kind {
        0 => {
            pair.fields = b"content-transfer-encoding: base64\r\n".to_vec();
            pair.value = super::encodings::base64(&pair.value).into();
        }
        1 => {
            pair.fields = b"Content-Transfer-Encoding: quoted-printable\r\n".to_vec();
            let each = pair.value.iter().map(|byte| format!("={byte:02X}"));
            pair.value = each.collect::<String>().into();
        }
        2 => {
            pair.fields = format!(
                "content-type: text/plain; charset={}\r\n",
                random.of(&["utf-8", "utf-16", "latin1", "utf-7"])
            )
            .into()
        }
        3 => {
            pair.name = random
                .of(&[
                    "email\"; name=\"a",
                    "a\"; name=\"email",
                    "a\"; name*=\"utf-8''email",
                    "x\\\"; name=\"email",
                    "email\"; Name=\"a",
                ])
                .into()
        }
        4 => pair.fields = b"content-disposition: form-data; name=\"a\"\r\n".to_vec(),
        5 => pair.fields = b"Content-Type: application/json\r\n".to_vec(),
        6 => pair.name = b"email\"\r\nx: \"".to_vec(),
        7 => {
            pair.name = b"z".to_vec();
            pair.before = random
                .of(&[
                    "X-Content-Disposition: form-data; name=\"email\"\r\n",
                    "x: content-disposition: form-data; name=\"email\"\r\n",
                    "x: y\r\n content-disposition: form-data; name=\"email\"\r\n",
                    "x: y\rcontent-disposition: form-data; name=\"email\"\r\n",
                ])
                .into()
        }
        8 => {
            pair.bare = true;
            pair.name = random
                .of(&[
                    "email", "email,z", "email:", "email/", "email=", "email(", "email?", "email<",
                    "email>", "email@", "email[", "email{",
                ])
                .into()
        }
        _ => pair.fields = b"x: y\r\n folded: z\r\n".to_vec(),
    });
    if random.once_in(2) {
        insert(draft, Pair::of("email", decoy), random);
    }
}
