"""What a question means to the engine."""

import pytest

from trimtab.cli.compare import check_times
from trimtab.compare import models_of
from trimtab.comparison import Question
from trimtab.errors import TrimtabError
from trimtab.traces.scenes.scene import open_scene


def test_a_move_takes_the_start_up_unless_the_question_says():
    scene = open_scene("adlro", jobs=5)
    assert models_of(Question(startup_s=30.0), scene, 0).pause_s == 30.0
    assert models_of(Question(startup_s=30.0, move_s=90.0), scene, 0).pause_s == 90.0
    assert models_of(Question(startup_s=30.0, move_s=5.0), scene, 0).pause_s == 30.0
    live = Question(startup_s=30.0, move_s=5.0, live_migration=True, mtbf_s=1e6)
    made = models_of(live, scene, 0)
    assert made.pause_s == 5.0 and made.live_migration and len(made.outages)


def test_a_move_that_takes_less_than_no_time_is_refused():
    with pytest.raises(TrimtabError, match=r"--move-s -1\.0 is below 0; give a larger number"):
        check_times(Question(move_s=-1.0))
