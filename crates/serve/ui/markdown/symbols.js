/** The commands of TeX that stand for one character or one name, and the alphabets of mathematics. */

/**
 * A table from a list of names and values.
 *
 * @param {string} text
 * @returns {Map<string, string>}
 */
function table(text) {
  const words = text.trim().split(/\s+/);
  return new Map(words.flatMap((word, index) => (index % 2 ? [] : [[word, words[index + 1]]])));
}

/** Letters; TeX sets Greek capitals and digits-like signs upright. */
export const LETTERS = table(`
  alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ iota ι kappa κ varkappa ϰ lambda λ mu μ nu ν
  xi ξ omicron ο pi π varpi ϖ rho ρ varrho ϱ sigma σ varsigma ς tau τ upsilon υ phi ϕ varphi φ chi χ psi ψ omega ω digamma ϝ
  ell ℓ imath ı jmath ȷ partial ∂ hbar ℏ hslash ℏ`);
export const UPRIGHT = table(`
  Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ Psi Ψ Omega Ω
  infty ∞ nabla ∇ emptyset ∅ varnothing ∅ aleph ℵ beth ℶ Re ℜ Im ℑ wp ℘ mho ℧ top ⊤ bot ⊥ angle ∠ measuredangle ∡ triangle △ square □ Box □
  Diamond ◇ lozenge ◊ blacksquare ■ qed ∎ bigstar ★ clubsuit ♣ diamondsuit ♢ heartsuit ♡ spadesuit ♠ sharp ♯ flat ♭ natural ♮ complement ∁ eth ð
  degree ° circledR ® copyright © pounds £ euro € S § P ¶ checkmark ✓ dag † ddag ‡ AA Å aa å ss ß ae æ AE Æ oe œ OE Œ o ø O Ø l ł L Ł
  R ℝ N ℕ Z ℤ Q ℚ C ℂ`);

/** Signs between, before or after terms. */
export const OPERATORS = table(String.raw`
  pm ± mp ∓ times × div ÷ cdot ⋅ ast ∗ star ⋆ circ ∘ bullet ∙ oplus ⊕ ominus ⊖ otimes ⊗ oslash ⊘ odot ⊙ cap ∩ cup ∪ uplus ⊎ sqcap ⊓ sqcup ⊔
  vee ∨ lor ∨ wedge ∧ land ∧ setminus ∖ smallsetminus ∖ wr ≀ amalg ⨿ dagger † ddagger ‡ ltimes ⋉ rtimes ⋊ bowtie ⋈ boxplus ⊞ boxtimes ⊠
  le ≤ leq ≤ leqslant ⩽ ge ≥ geq ≥ geqslant ⩾ ne ≠ neq ≠ equiv ≡ sim ∼ simeq ≃ approx ≈ approxeq ≊ cong ≅ propto ∝ varpropto ∝ asymp ≍ doteq ≐ triangleq ≜
  coloneqq ≔ eqqcolon ≕ colon : ll ≪ gg ≫ lll ⋘ ggg ⋙ prec ≺ succ ≻ preceq ⪯ succeq ⪰ lesssim ≲ gtrsim ≳ lt < gt > nleq ≰ ngeq ≱ nless ≮ ngtr ≯
  in ∈ ni ∋ notin ∉ subset ⊂ supset ⊃ subseteq ⊆ supseteq ⊇ subsetneq ⊊ supsetneq ⊋ nsubseteq ⊈ nsupseteq ⊉ sqsubset ⊏ sqsupset ⊐ sqsubseteq ⊑ sqsupseteq ⊒
  mid ∣ nmid ∤ parallel ∥ nparallel ∦ perp ⟂ vdash ⊢ dashv ⊣ models ⊨ vDash ⊨ Vdash ⊩ nvdash ⊬ forall ∀ exists ∃ nexists ∄ neg ¬ lnot ¬ therefore ∴ because ∵
  to → rightarrow → leftarrow ← gets ← uparrow ↑ downarrow ↓ leftrightarrow ↔ updownarrow ↕ Rightarrow ⇒ Leftarrow ⇐ Uparrow ⇑ Downarrow ⇓ Leftrightarrow ⇔
  longrightarrow ⟶ longleftarrow ⟵ longleftrightarrow ⟷ Longrightarrow ⟹ Longleftarrow ⟸ Longleftrightarrow ⟺ implies ⟹ impliedby ⟸ iff ⟺ mapsto ↦ longmapsto ⟼
  hookrightarrow ↪ hookleftarrow ↩ nearrow ↗ searrow ↘ swarrow ↙ nwarrow ↖ rightharpoonup ⇀ rightharpoondown ⇁ leftharpoonup ↼ leftharpoondown ↽
  rightleftharpoons ⇌ leftrightharpoons ⇋ rightleftarrows ⇄ rightrightarrows ⇉ twoheadrightarrow ↠ rightarrowtail ↣ rightsquigarrow ⇝ leadsto ⇝ nrightarrow ↛ nRightarrow ⇏
  curvearrowright ↷ circlearrowleft ↺ circlearrowright ↻ upharpoonright ↾ restriction ↾ multimap ⊸
  dots … ldots … dotsc … dotso … cdots ⋯ dotsb ⋯ dotsm ⋯ dotsi ⋯ vdots ⋮ ddots ⋱ iddots ⋰ prime ′ backprime ‵ surd √ backslash \ triangleleft ◁ triangleright ▷
  trianglelefteq ⊴ trianglerighteq ⊵ vartriangle △ smile ⌣ frown ⌢ between ≬ pitchfork ⋔ Subset ⋐ Supset ⋑ doublecap ⋒ doublecup ⋓ circledast ⊛ circledcirc ⊚ divideontimes ⋇ centerdot ⋅ intercal ⊺`);

/** Operators whose limits stand above and below in display style, or beside them if they are integrals. */
export const LARGE = table(`
  sum ∑ prod ∏ coprod ∐ bigcup ⋃ bigcap ⋂ bigsqcup ⨆ biguplus ⨄ bigvee ⋁ bigwedge ⋀ bigoplus ⨁ bigotimes ⨂ bigodot ⨀`);
export const INTEGRALS = table("int ∫ iint ∬ iiint ∭ iiiint ⨌ oint ∮ oiint ∯ oiiint ∰ smallint ∫");

export const FUNCTIONS = new Set(
  ("sin cos tan cot sec csc sinh cosh tanh coth sech csch arcsin arccos arctan arccot arsinh arcosh artanh sgn exp log ln lg deg dim hom ker arg " +
    "tr rank erf diag span supp sinc Tr Var Cov Hom Ker").split(" "));
/** Functions with limits below; `~` is a space. */
export const LIMITS = table(`lim lim limsup lim~sup liminf lim~inf varlimsup lim~sup varliminf lim~inf injlim inj~lim projlim proj~lim
  max max min min sup sup inf inf det det gcd gcd lcm lcm Pr Pr argmax arg~max argmin arg~min`);

/** Brackets, also behind \left, \right and \big. */
export const DELIMITERS = table(String.raw`
  ( ( ) ) [ [ ] ] \{ { \} } \lbrace { \rbrace } \lbrack [ \rbrack ] \langle ⟨ \rangle ⟩ \lang ⟨ \rang ⟩ < ⟨ > ⟩ \lfloor ⌊ \rfloor ⌋ \lceil ⌈ \rceil ⌉ | | \vert | \lvert | \rvert |
  \| ‖ \Vert ‖ \lVert ‖ \rVert ‖ / / \backslash \ \uparrow ↑ \downarrow ↓ \updownarrow ↕ \Uparrow ⇑ \Downarrow ⇓ \llbracket ⟦ \rrbracket ⟧ \lgroup ⟮ \rgroup ⟯ \ulcorner ⌜ \urcorner ⌝`);

/** Marks above or below: the character, and whether it grows with what is below it. */
export const ACCENTS = table(`
  hat ^ check ˇ tilde ~ acute ´ grave \` dot ˙ ddot ¨ dddot ⃛ breve ˘ bar ¯ vec → mathring ˚`);
export const WIDE_ACCENTS = table(`
  widehat ^ widetilde ~ overrightarrow → overleftarrow ← overleftrightarrow ↔ overbrace ⏞ overbracket ⎴ overparen ⏜`);
export const UNDER_ACCENTS = table("underbrace ⏟ underbracket ⎵ underrightarrow → underleftarrow ← underleftrightarrow ↔ underparen ⏝");
export const ARROWS = table(`
  xrightarrow → xleftarrow ← xleftrightarrow ↔ xRightarrow ⇒ xLeftarrow ⇐ xLeftrightarrow ⇔ xmapsto ↦ xhookrightarrow ↪ xhookleftarrow ↩ xrightleftharpoons ⇌ xlongequal =`);

/** Widths of spaces in em. */
export const SPACES = new Map(Object.entries({
  ",": 0.1667, thinspace: 0.1667, ":": 0.2222, ">": 0.2222, medspace: 0.2222, ";": 0.2778, thickspace: 0.2778, "!": -0.1667, negthinspace: -0.1667,
  " ": 0.25, "\n": 0.25, space: 0.25, nobreakspace: 0.25, enspace: 0.5, quad: 1, qquad: 2,
}));

/** Where each alphabet has its capitals, small letters, digits, Greek capitals and small Greek letters. */
const ALPHABETS = {
  bold: [0x1d400, 0x1d41a, 0x1d7ce, 0x1d6a8, 0x1d6c2],
  "bold-italic": [0x1d468, 0x1d482, 0x1d7ce, 0x1d71c, 0x1d736],
  script: [0x1d49c, 0x1d4b6, 0, 0, 0],
  fraktur: [0x1d504, 0x1d51e, 0, 0, 0],
  double: [0x1d538, 0x1d552, 0x1d7d8, 0, 0],
  sans: [0x1d5a0, 0x1d5ba, 0x1d7e2, 0, 0],
  mono: [0x1d670, 0x1d68a, 0x1d7f6, 0, 0],
};
/** Letters that Unicode had before the alphabets. @type {Record<string, Record<string, string>>} */
const EARLIER = {
  script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
  double: { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
};

/** @typedef {"normal" | "italic" | keyof typeof ALPHABETS} Variant */

/** Commands that choose an alphabet. @type {Map<string, Variant>} */
export const VARIANTS = new Map(Object.entries({
  mathrm: "normal", mathup: "normal", rm: "normal", mathnormal: "italic", mathit: "italic", it: "italic", mathbf: "bold", bf: "bold", bold: "bold",
  boldsymbol: "bold-italic", bm: "bold-italic", pmb: "bold-italic", mathbb: "double", Bbb: "double", mathcal: "script", cal: "script", mathscr: "script",
  mathfrak: "fraktur", frak: "fraktur", mathsf: "sans", sf: "sans", mathtt: "mono", tt: "mono",
}));
/** Those that hold for the rest of a group. */
export const SWITCHES = new Set(["rm", "it", "bf", "cal", "frak", "sf", "tt"]);

/**
 * The letters and digits of a text in an alphabet.
 *
 * @param {string} text
 * @param {Variant | undefined} variant
 */
export function inAlphabet(text, variant) {
  if (!variant || variant === "normal" || variant === "italic") return text;
  const starts = ALPHABETS[variant];
  return text.replace(/[A-Za-z0-9Α-Ωα-ω]/g, (char) => {
    const earlier = EARLIER[variant]?.[char];
    if (earlier) return earlier;
    const kind = /[A-Z]/.test(char) ? 0 : /[a-z]/.test(char) ? 1 : /\d/.test(char) ? 2 : /[Α-Ω]/.test(char) ? 3 : 4;
    if (!starts[kind]) return char;
    return String.fromCodePoint(starts[kind] + char.charCodeAt(0) - "Aa0Αα".charCodeAt(kind));
  });
}
