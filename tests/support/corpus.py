"""Lines of text that tokenizers trip over: real sentences in many scripts, and what is made of them by chance
that is the same each time."""

from __future__ import annotations

import random

_SENTENCES = """\
The quick brown fox jumps over the lazy dog, doesn't it? They've said: “I'LL be there at 10:35!”
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép!
Falsches Üben von Xylophonmusik quält jeden größeren Zwerg. Ça coûte 12,50 € à l'œil nu, n'est-ce pas ?
Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак, ґанок, ўсё, њега.
Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Τάχιστη αλώπηξ βαφής ψημένη γη, δρασκελίζει υπέρ νωθρού κυνός.
نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. صِف خَلقَ خَودِ ١٢٣٤
דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם
いろはにほへと ちりぬるを。東京都の人口は約1,400万人です。カタカナ、ﾊﾝｶｸ!
我能吞下玻璃而不伤身体。中文，标点：“引号”（括号）……２０２４年
키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한국어 띄어쓰기
ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले। १२३
আমি কাঁচ খেতে পারি, তাতে আমার কোনো ক্ষতি হয় না। நான் கண்ணாடி சாப்பிடுவேன்
เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน ๑๒๓
Pchnąć w tę łódź jeża lub ośm skrzyń fig. Đây là một câu tiếng Việt có dấu: Việt Nam.
def f(x: int) -> str:\\n\\treturn f"{x!r:>10}" # TODO    if x != 3 && y >= 4: pass
https://example.org/a/b?q=1&r=%20#frag user.name+tag@mail.example.com C:\\Users\\x\\file.txt
{"key": [1, 2.5, -3e10, null, true], "näme": "välue\\u00e9"} <div class="a">&nbsp;</div>
ሰማይ አይታረስ ንጉሥ አይከሰስ። ქართული ენა. Հայերեն լեզու. བོད་སྐད། ភាសាខ្មែរ မြန်မာ
SCREAMING CamelCaseWord snake_case kebab-case x1y2z3 3.14159 1234567890 0xDEADBEEF 1st 2ND
I can't, you're, we'll, HE'S, it'd 'twas rock'n'roll ’tis don’t L’été O'Neill"""
SENTENCES = _SENTENCES.split("\n")
EMOJI = "😀😃🤣👍🏽👩‍👩‍👧‍👦🇩🇪🏳️‍🌈❤️‍🔥✨🧑🏿‍🚀㊗️©®™"
MARKS = (
    "e\u0301", "o\u0308u\u0308", "a\u030a\u0323", "n\u0303", "\u0915\u093c", "\u0e01\u0e34\u0e4c",
    "Z\u0351\u036b\u0343\u036a\u0302a\u0328l\u0322g\u0321o\u0335", "i\u0307", "\u1112\u1161\u11ab",
)  # fmt: skip
_SPECIALS = """\
<s> </s> <unk> <bos> <eos> <pad> [CLS] [SEP] [UNK] [MASK] [PAD] <|endoftext|> <|im_start|>user<|im_end|>
<|begin_of_text|> <start_of_turn> <end_of_turn> <0x0A> <0xE2> ▁ ▁▁ ##ing <mask> <|eot_id|> [EMPTY_3] <unused5>
<h1></h1> <table> <fim_prefix> <|START_OF_TURN_TOKEN|>"""
SPECIALS = _SPECIALS.split()
SPACES = (
    " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\u00a0", "\u3000", "\u2003", "\u200b", "\ufeff",
    "\u2028", "\x0b", "\x0c", "\u0085", "\u202f", "\u1680",
)  # fmt: skip
CONTROLS = (
    "\x00", "\x01", "\x07", "\x1b", "\x7f", "\x80", "\x9f", "\u200e", "\u202e", "\u2060", "\ufffd", "\ufffe",
    "\U000e0041", "\ue000", "\xad", "\u061c",
)  # fmt: skip
_RANGES = (
    (0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x370, 0x400), (0x400, 0x530), (0x590, 0x700),
    (0x900, 0xE00), (0xE00, 0x1000), (0x1E00, 0x2000), (0x2000, 0x2100), (0x2100, 0x2C00), (0x3000, 0x3100),
    (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF),
    (0x1F300, 0x1FAFF), (0x20000, 0x2A6DF), (0x10000, 0x11000),
)  # fmt: skip
_WORDS = [word for sentence in SENTENCES for word in sentence.split()]
_REPEATED = (" ", "\n", "\t", "a", "=", "-", "_", ".", "#", "*", "ab", "\r\n", "0", "é", "字", "😀", "▁", "!")
_TIMES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 64, 99)


def lines(count: int = 4000, seed: int = 20) -> list[str]:
    """So many, the same ones each time."""
    chance = random.Random(seed)
    found = [*SENTENCES, EMOJI, " ".join(MARKS), *SPECIALS, *SPACES, *CONTROLS, "", " ".join(SPECIALS)]
    found += [each * times for each in _REPEATED for times in _TIMES]
    while len(found) < count:
        found.append("".join(_piece(chance) + _gap(chance) for _ in range(chance.randint(1, 14))))
    return found


def _gap(chance: random.Random) -> str:
    if chance.random() < 0.2:
        return ""
    gap = chance.choice([" "] * 12 + list(SPACES))
    return gap if chance.random() < 0.9 else gap * chance.randint(2, 6)


def _piece(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.45:
        return chance.choice(_WORDS)
    if kind < 0.55:
        word = chance.choice(_WORDS)
        return word[: chance.randrange(len(word))] + chance.choice(_WORDS)
    if kind < 0.62:
        return chance.choice(SPECIALS)
    if kind < 0.68:
        return "".join(chance.choice(EMOJI) for _ in range(chance.randint(1, 4)))
    if kind < 0.73:
        return chance.choice(MARKS)
    if kind < 0.76:
        return chance.choice(CONTROLS)
    if kind < 0.83:
        return str(chance.randrange(10 ** chance.randint(1, 9)))
    if kind < 0.88:
        signs = ".,;:!?'\"()[]{}<>@#$%^&*-_=+|\\/`~"
        return "".join(chance.choice(signs) for _ in range(chance.randint(1, 5)))
    low, high = chance.choice(_RANGES)
    return "".join(chr(chance.randrange(low, high)) for _ in range(chance.randint(1, 6)))
