from tfnmt.documents.detection import Detector

SENTENCES = {
    "de": "Wo kann ich heute Abend eine Fahrkarte kaufen?",
    "en": "Where can I buy a ticket this evening?",
    "es": "¿Dónde puedo comprar un billete esta noche?",
    "fr": "Où puis-je acheter un billet ce soir ?",
}


def test_languages_of_the_model_are_detected() -> None:
    detector = Detector(SENTENCES)
    for language, sentence in SENTENCES.items():
        best, *others = detector.detect(sentence)
        assert best.language == language
        assert best.confidence > 0.5
        assert {guess.language for guess in others} == SENTENCES.keys() - {language}


def test_text_without_letters_has_no_language() -> None:
    assert Detector(["de", "en"]).detect("12.5 -- \u00a0") == []


def test_only_known_language_is_certain_and_unknown_codes_are_ignored() -> None:
    guesses = Detector(["en-GB", "xx"]).detect("any text")
    assert [(guess.language, guess.confidence) for guess in guesses] == [("en-GB", 1.0)]


def test_language_codes_may_name_a_region_with_an_underscore() -> None:
    best, *_ = Detector(["pt_BR", "en", "de"]).detect("Onde posso comprar um bilhete esta noite?")
    assert best.language == "pt_BR"
    assert best.confidence > 0.5
